// Package memorystore has the back ends of the memory store. Each passes the
// suite in memorystoretest.
package memorystore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/sqlstore"
	"cofferdam.dev/services/statefacade/internal/memory"
)

const component = "memory"

// migrations of the tables, which all begin with memory_.
//
// memory_changes has one row for each write that was ever made: it answers
// repeats, and it is the record of where every revision came from. Contents stand
// only in memory_records, so that deleting a record deletes its content.
var migrations = []string{`
CREATE TABLE memory_records (
	namespace    TEXT NOT NULL,
	key          TEXT NOT NULL,
	kind         TEXT NOT NULL,
	content_type TEXT NOT NULL,
	content      BLOB NOT NULL,
	revision     INTEGER NOT NULL,
	sha256       BLOB NOT NULL,
	updated_at   INTEGER NOT NULL, -- Unix microseconds
	binding_id   TEXT NOT NULL,
	epoch        INTEGER NOT NULL,
	generation   INTEGER NOT NULL,
	run_id       TEXT NOT NULL,
	writer       TEXT NOT NULL,
	previous     INTEGER NOT NULL,
	PRIMARY KEY (namespace, key)
) STRICT;
CREATE TABLE memory_changes (
	id         TEXT PRIMARY KEY,
	namespace  TEXT NOT NULL,
	key        TEXT NOT NULL,
	revision   INTEGER NOT NULL,
	sha256     BLOB NOT NULL,
	at         INTEGER NOT NULL, -- Unix microseconds
	binding_id TEXT NOT NULL,
	epoch      INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	run_id     TEXT NOT NULL,
	writer     TEXT NOT NULL
) STRICT;
CREATE INDEX memory_changes_by_record ON memory_changes (namespace, key, revision);
`}

// SQLite keeps memory in one SQLite file.
type SQLite struct{ db *sqlstore.DB }

var _ memory.Store = (*SQLite)(nil)

// OpenSQLite opens or makes the file.
func OpenSQLite(ctx context.Context, path string) (*SQLite, error) {
	db, err := sqlstore.Open(ctx, path, component, migrations)
	if err != nil {
		return nil, err
	}
	return &SQLite{db: db}, nil
}

// Close closes the file.
func (s *SQLite) Close() error { return s.db.Close() }

// Check asks whether the file answers.
func (s *SQLite) Check(ctx context.Context) error { return s.db.Check(ctx) }

// Get implements [memory.Store].
func (s *SQLite) Get(ctx context.Context, namespace, key string) (memory.Record, error) {
	const query = `SELECT kind, content_type, content, revision, sha256, updated_at, binding_id, epoch, generation, run_id, writer, previous
		FROM memory_records WHERE namespace = ? AND key = ?`
	r := memory.Record{Key: key}
	var sum []byte
	var at int64
	err := s.db.QueryRow(ctx, query, namespace, key).Scan(&r.Kind, &r.ContentType, &r.Content, &r.Revision, &sum, &at,
		&r.Origin.BindingID, &r.Origin.Epoch, &r.Origin.Generation, &r.Origin.RunID, &r.Origin.Writer, &r.Origin.Previous)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return memory.Record{}, memory.ErrNotFound
	case err != nil:
		return memory.Record{}, fmt.Errorf("get memory: %w", err)
	case copy(r.SHA256[:], sum) != len(r.SHA256) || len(sum) != len(r.SHA256):
		return memory.Record{}, errors.New("get memory: digest is damaged")
	}
	r.UpdatedAt = time.UnixMicro(at).UTC()
	return r, nil
}

// Put implements [memory.Store]. Its transaction holds the write lock from its
// beginning.
func (s *SQLite) Put(ctx context.Context, c memory.Change, most int) (revision uint64, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT revision FROM memory_changes WHERE id = ?`, c.ID).Scan(&revision)
		if !errors.Is(err, sql.ErrNoRows) {
			return err // a repeat, or a failure
		}
		revision = c.Expected + 1
		if err := compare(ctx, tx, c, most); err != nil {
			return err
		}
		return write(ctx, tx, c)
	})
	if err != nil {
		return 0, fmt.Errorf("put memory: %w", err)
	}
	return revision, nil
}

func compare(ctx context.Context, tx *sql.Tx, c memory.Change, most int) error {
	var stands uint64
	err := tx.QueryRowContext(ctx, `SELECT revision FROM memory_records WHERE namespace = ? AND key = ?`, c.Namespace, c.Record.Key).Scan(&stands)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	case stands != c.Expected:
		return memory.ErrRevision
	case stands > 0:
		return nil
	}
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM memory_records WHERE namespace = ?`, c.Namespace).Scan(&n); err != nil {
		return err
	}
	if n >= most {
		return memory.ErrFull
	}
	return nil
}

func write(ctx context.Context, tx *sql.Tx, c memory.Change) error {
	r, o, at := c.Record, c.Record.Origin, c.Record.UpdatedAt.UnixMicro()
	const record = `INSERT OR REPLACE INTO memory_records
		(namespace, key, kind, content_type, content, revision, sha256, updated_at, binding_id, epoch, generation, run_id, writer, previous)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	if _, err := tx.ExecContext(ctx, record, c.Namespace, r.Key, string(r.Kind), r.ContentType, r.Content, c.Expected+1, r.SHA256[:], at,
		o.BindingID, o.Epoch, o.Generation, o.RunID, o.Writer, c.Expected); err != nil {
		return err
	}
	const change = `INSERT INTO memory_changes (id, namespace, key, revision, sha256, at, binding_id, epoch, generation, run_id, writer)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	_, err := tx.ExecContext(ctx, change, c.ID, c.Namespace, r.Key, c.Expected+1, r.SHA256[:], at, o.BindingID, o.Epoch, o.Generation, o.RunID, o.Writer)
	return err
}
