// Package sqlitestore keeps bindings in one SQLite file: the embedded back end
// of package binding.
//
// Several processes share the file. The journal is a WAL with synchronous=FULL,
// so what was answered as written survives a loss of power; each write is one
// immediate transaction, and the update of a record names id, version, epoch,
// generation and run in its own WHERE. Reads see what is committed.
package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/sqlstore"
)

// component names the tables of this package in a file that others share.
const component = "binding"

// Store is a binding.Backend on one file. It is safe for concurrent use, also
// beside other Stores on the same file.
type Store struct {
	db *sqlstore.DB
	q  queries
}

var _ binding.Backend = (*Store)(nil)

// Open opens or creates the file at path, whose folder must exist. The file is
// for its owner alone (mode 0600): one that others can read is refused, as is
// one with a newer schema.
func Open(ctx context.Context, path string) (*Store, error) {
	db, err := sqlstore.Open(ctx, path, component, migrations())
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	s := &Store{db: db}
	if err := s.q.prepare(ctx, db.Writer(), db.Reader()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Check asks whether the file answers, and still has the version that this program
// knows.
func (s *Store) Check(ctx context.Context) error { return s.db.Check(ctx) }

// Close waits for what is under way and closes the file.
func (s *Store) Close() error { return errors.Join(s.q.close(), s.db.Close()) }

// write runs do in one immediate transaction. The context bounds the wait for
// the lock; once the lock is held the few statements run to their end, and the
// context decides again at the commit.
func (s *Store) write(ctx context.Context, do func(tx *tx) error) error {
	var refused error
	err := s.db.Write(ctx, func(inner context.Context, t *sql.Tx) error {
		refused = do(&tx{ctx: inner, tx: t})
		return refused
	})
	if err == nil || refused != nil {
		return err // do has named its errors
	}
	return storeError(ctx, "write", err)
}

// storeError names the step. The context's own error is kept in view: the driver
// reports some interrupted statements as its own.
func storeError(ctx context.Context, step string, err error) error {
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return binding.ErrNotFound
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("sqlitestore: %s: %w: %w", step, ctx.Err(), err)
	default:
		return fmt.Errorf("sqlitestore: %s: %w", step, err)
	}
}
