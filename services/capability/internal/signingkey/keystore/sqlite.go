package keystore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/sqlstore"
	"cofferdam.dev/services/capability/internal/signingkey"
)

const table = `
CREATE TABLE capability_key_document (
	id       INTEGER PRIMARY KEY CHECK (id = 1),
	revision INTEGER NOT NULL,
	body     BLOB NOT NULL -- JSON; the keys in it are encrypted
) STRICT;`

// SQLite keeps the document in a SQLite file, which other tables may share.
type SQLite struct{ db *sqlstore.DB }

var _ signingkey.Store = (*SQLite)(nil)

// OpenSQLite opens or makes the file.
func OpenSQLite(ctx context.Context, path string) (*SQLite, error) {
	db, err := sqlstore.Open(ctx, path, "capability_key", []string{table})
	if err != nil {
		return nil, err
	}
	return &SQLite{db: db}, nil
}

// Close closes the file.
func (s *SQLite) Close() error { return s.db.Close() }

// LoadKeys implements signingkey.Store.
func (s *SQLite) LoadKeys(ctx context.Context) (revision uint64, body []byte, err error) {
	err = s.db.QueryRow(ctx, `SELECT revision, body FROM capability_key_document`).Scan(&revision, &body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil, nil
	case err != nil:
		return 0, nil, fmt.Errorf("load keys: %w", err)
	}
	return revision, body, nil
}

// ReplaceKeys implements signingkey.Store.
func (s *SQLite) ReplaceKeys(ctx context.Context, expected uint64, body []byte) (done bool, err error) {
	const insert = `INSERT INTO capability_key_document (id, revision, body) VALUES (1, ?, ?) ON CONFLICT (id) DO NOTHING`
	const update = `UPDATE capability_key_document SET revision = ?, body = ? WHERE revision = ?`
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		query, args := update, []any{expected + 1, body, expected}
		if expected == 0 {
			query, args = insert, args[:2]
		}
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		done = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("replace keys: %w", err)
	}
	return done, nil
}
