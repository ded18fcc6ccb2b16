// Package snapshotstore has the back ends of the snapshot store. Each passes the
// suite in snapshotstoretest.
package snapshotstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/sqlstore"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

const component = "thread"

// migrations of the tables, which all begin with thread_.
var migrations = []string{`
CREATE TABLE thread_snapshots (
	ref           TEXT PRIMARY KEY,
	binding_id    TEXT NOT NULL,
	epoch         INTEGER NOT NULL,
	generation    INTEGER NOT NULL,
	run_id        TEXT NOT NULL,
	codec         TEXT NOT NULL,
	codec_version INTEGER NOT NULL,
	sha256        BLOB NOT NULL,
	payload       BLOB NOT NULL,
	confirmed     INTEGER NOT NULL DEFAULT 0,
	created_at    INTEGER NOT NULL -- Unix seconds; for people
) STRICT;
CREATE INDEX thread_snapshots_by_run ON thread_snapshots (binding_id, epoch, run_id);
`, `
-- The key of a payload in the object store; there payload is empty.
ALTER TABLE thread_snapshots ADD COLUMN blob TEXT NOT NULL DEFAULT '';
ALTER TABLE thread_snapshots ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread_snapshots ADD COLUMN settled INTEGER NOT NULL DEFAULT 0;
-- created_at is in microseconds from here on, and counts.
UPDATE thread_snapshots SET size = length(payload), created_at = created_at * 1000000;
CREATE INDEX thread_snapshots_unsettled ON thread_snapshots (binding_id, created_at) WHERE settled = 0;
`}

const columns = `ref, binding_id, epoch, generation, run_id, codec, codec_version, size, sha256, blob, confirmed, created_at`

// SQLite keeps snapshots in one SQLite file.
type SQLite struct{ db *sqlstore.DB }

var _ threadstate.Snapshots = (*SQLite)(nil)

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

// Stage implements [threadstate.Snapshots]. The bound is counted in the insert.
func (s *SQLite) Stage(ctx context.Context, snap threadstate.Snapshot, most int) (stands threadstate.Entry, err error) {
	const insert = `INSERT INTO thread_snapshots (` + columns + `, payload)
		SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?
		WHERE (SELECT count(*) FROM thread_snapshots WHERE binding_id = ? AND epoch = ? AND run_id = ?) < ?
		ON CONFLICT (ref) DO NOTHING`
	o := snap.Owner
	payload := snap.Payload
	if payload == nil {
		payload = []byte{}
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, insert,
			snap.Ref, o.BindingID, o.Epoch, o.Generation, o.RunID, snap.Codec.Name, snap.Codec.Version, snap.Size, snap.SHA256[:], snap.Blob, snap.At.UnixMicro(), payload,
			o.BindingID, o.Epoch, o.RunID, most)
		if err != nil {
			return err
		}
		stands, err = scan(tx.QueryRowContext(ctx, find, snap.Ref))
		if errors.Is(err, threadstate.ErrNoSnapshot) { // neither inserted nor there
			return threadstate.ErrFull
		}
		return err
	})
	if err != nil {
		return threadstate.Entry{}, fmt.Errorf("stage snapshot: %w", err)
	}
	return stands, nil
}

// Confirm implements [threadstate.Snapshots].
func (s *SQLite) Confirm(ctx context.Context, ref string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE thread_snapshots SET confirmed = 1 WHERE ref = ?`, ref)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return threadstate.ErrNoSnapshot
	})
	if err != nil {
		return fmt.Errorf("confirm snapshot: %w", err)
	}
	return nil
}

// Drop implements [threadstate.Snapshots].
func (s *SQLite) Drop(ctx context.Context, ref string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM thread_snapshots WHERE ref = ? AND confirmed = 0`, ref)
		return err
	})
	if err != nil {
		return fmt.Errorf("drop snapshot: %w", err)
	}
	return nil
}

// Stat implements [threadstate.Snapshots].
func (s *SQLite) Stat(ctx context.Context, ref string) (threadstate.Entry, error) {
	e, err := scan(s.db.QueryRow(ctx, find, ref))
	if err == nil && !e.Confirmed {
		return threadstate.Entry{}, threadstate.ErrNoSnapshot
	}
	return e, err
}

// Load implements [threadstate.Snapshots].
func (s *SQLite) Load(ctx context.Context, ref string) (threadstate.Snapshot, error) {
	e, err := s.Stat(ctx, ref)
	if err != nil {
		return threadstate.Snapshot{}, err
	}
	snap := threadstate.Snapshot{Entry: e}
	err = s.db.QueryRow(ctx, `SELECT payload FROM thread_snapshots WHERE ref = ?`, ref).Scan(&snap.Payload)
	if err != nil {
		return threadstate.Snapshot{}, fmt.Errorf("load snapshot: %w", err)
	}
	return snap, nil
}

const find = `SELECT ` + columns + ` FROM thread_snapshots WHERE ref = ?`

func scan(row interface{ Scan(dest ...any) error }) (e threadstate.Entry, err error) {
	var sum []byte
	var at int64
	err = row.Scan(&e.Ref, &e.Owner.BindingID, &e.Owner.Epoch, &e.Owner.Generation, &e.Owner.RunID,
		&e.Codec.Name, &e.Codec.Version, &e.Size, &sum, &e.Blob, &e.Confirmed, &at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return threadstate.Entry{}, threadstate.ErrNoSnapshot
	case err != nil:
		return threadstate.Entry{}, fmt.Errorf("find snapshot: %w", err)
	case copy(e.SHA256[:], sum) != len(e.SHA256) || len(sum) != len(e.SHA256):
		return threadstate.Entry{}, errors.New("find snapshot: digest is damaged")
	}
	e.At = time.UnixMicro(at)
	return e, nil
}
