package agentstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/sqlstore"
	"cofferdam.dev/services/controlplane/internal/agents"
)

const table = `
CREATE TABLE agent_versions (
	agent_id TEXT NOT NULL,
	version  INTEGER NOT NULL CHECK (version BETWEEN 1 AND 4294967295),
	digest   TEXT NOT NULL,
	body     BLOB NOT NULL, -- JSON
	made_at  INTEGER NOT NULL, -- nanoseconds since 1970
	PRIMARY KEY (agent_id, version)
) STRICT;`

// SQLite keeps versions in a SQLite file, which other tables may share.
type SQLite struct{ *sqlstore.DB }

var _ Store = SQLite{}

// OpenSQLite opens or makes the file.
func OpenSQLite(ctx context.Context, path string) (SQLite, error) {
	db, err := sqlstore.Open(ctx, path, component, []string{table})
	return SQLite{db}, err
}

// Newest implements agents.Store.
func (s SQLite) Newest(ctx context.Context, id string) (agents.Newest, error) {
	n := agents.Newest{ID: id}
	err := s.QueryRow(ctx, `SELECT version, digest FROM agent_versions WHERE agent_id = ? ORDER BY version DESC LIMIT 1`, id).Scan(&n.Version, &n.Digest)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return n, fmt.Errorf("newest version: %w", err)
	}
	return n, nil
}

// Load implements agents.Store.
func (s SQLite) Load(ctx context.Context, id string, version uint32) (agents.Record, error) {
	r := agents.Record{ID: id, Version: version}
	var at int64
	err := s.QueryRow(ctx, `SELECT digest, body, made_at FROM agent_versions WHERE agent_id = ? AND version = ?`, id, version).Scan(&r.Digest, &r.Body, &at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return r, agents.ErrNoVersion
	case err != nil:
		return r, fmt.Errorf("load version: %w", err)
	}
	r.At = time.Unix(0, at).UTC()
	return r, nil
}

// Insert implements agents.Store.
func (s SQLite) Insert(ctx context.Context, r agents.Record) (made bool, err error) {
	const insert = `INSERT INTO agent_versions (agent_id, version, digest, body, made_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	err = s.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, insert, r.ID, r.Version, r.Digest, r.Body, r.At.UnixNano())
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		made = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("insert version: %w", err)
	}
	return made, nil
}

// List implements agents.Store.
func (s SQLite) List(ctx context.Context, limit int) ([]agents.Newest, error) {
	// SQLite takes the other columns from the row that has the maximum.
	const list = `SELECT agent_id, MAX(version), digest FROM agent_versions GROUP BY agent_id ORDER BY agent_id LIMIT ?`
	rows, err := s.Reader().QueryContext(ctx, list, limit)
	if err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	defer rows.Close()
	var out []agents.Newest
	for rows.Next() {
		var n agents.Newest
		if err := rows.Scan(&n.ID, &n.Version, &n.Digest); err != nil {
			return nil, fmt.Errorf("list agents: %w", err)
		}
		out = append(out, n)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list agents: %w", err)
	}
	return out, nil
}

// Digests implements agents.Store.
func (s SQLite) Digests(ctx context.Context, id string) (map[string]uint32, error) {
	rows, err := s.Reader().QueryContext(ctx, `SELECT digest, version FROM agent_versions WHERE agent_id = ? ORDER BY version`, id)
	if err != nil {
		return nil, fmt.Errorf("versions of an agent: %w", err)
	}
	defer rows.Close()
	out := map[string]uint32{}
	for rows.Next() {
		var digest string
		var version uint32
		if err := rows.Scan(&digest, &version); err != nil {
			return nil, fmt.Errorf("versions of an agent: %w", err)
		}
		out[digest] = version
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("versions of an agent: %w", err)
	}
	return out, nil
}
