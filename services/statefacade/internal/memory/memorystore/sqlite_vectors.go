package memorystore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory"
)

// Unembedded implements [memory.Store]. The two comparisons are ranges of an
// index, which "not equal" would not be.
func (s *SQLite) Unembedded(ctx context.Context, space, namespace string, after memory.Address, now time.Time, limit int) ([]memory.Address, error) {
	const query = `SELECT namespace, key, revision, kind FROM memory_records
		WHERE (space < ? OR space > ?) AND ` + there + ` AND (? = '' OR namespace = ?) AND (namespace, key) > (?, ?)
		ORDER BY namespace, key LIMIT ?`
	rows, err := s.db.Reader().QueryContext(ctx, query, space, space, now.UnixMicro(), namespace, namespace, after.Namespace, after.Key, limit)
	if err != nil {
		return nil, fmt.Errorf("unembedded memory: %w", err)
	}
	return collect(rows, "unembedded memory", func(rows *sql.Rows) (a memory.Address, err error) {
		return a, rows.Scan(&a.Namespace, &a.Key, &a.Revision, &a.Kind)
	})
}

// Embed implements [memory.Store].
func (s *SQLite) Embed(ctx context.Context, a memory.Address, space string, vector []byte) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE memory_records SET space = ?, vector = ? WHERE namespace = ? AND key = ? AND revision = ? AND deleted = 0`,
			space, vector, a.Namespace, a.Key, a.Revision)
		return err
	})
	if err != nil {
		return fmt.Errorf("embed memory: %w", err)
	}
	return nil
}

// Vectors implements [memory.Store].
func (s *SQLite) Vectors(ctx context.Context, namespace, space string, kinds []memory.Kind, now time.Time, take func(key string, vector []byte)) (err error) {
	if len(kinds) == 0 {
		kinds = nil // null: all of them
	}
	of, err := json.Marshal(kinds)
	if err != nil {
		return err
	}
	rows, err := s.db.Reader().QueryContext(ctx, `SELECT key, vector FROM memory_records
		WHERE namespace = ? AND space = ? AND `+there+` AND (? = 'null' OR kind IN (SELECT value FROM json_each(?)))`,
		namespace, space, now.UnixMicro(), string(of), string(of))
	if err != nil {
		return fmt.Errorf("vectors of memory: %w", err)
	}
	defer func() {
		if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
			err = fmt.Errorf("vectors of memory: %w", err)
		}
	}()
	for rows.Next() {
		var key string
		var vector sql.RawBytes
		if err := rows.Scan(&key, &vector); err != nil {
			return err
		}
		take(key, vector)
	}
	return nil
}
