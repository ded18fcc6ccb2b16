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
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"cofferdam.dev/pkg/binding"
)

const (
	// lockWait is how long a write waits for another process's, at most; its
	// context may end it sooner.
	lockWait = 5 * time.Second
	readers  = 4
)

// Store is a binding.Backend on one file. It is safe for concurrent use, also
// beside other Stores on the same file.
type Store struct {
	// writer has one connection: the writers of a process queue here, with their
	// contexts, instead of at the file's lock.
	writer *sql.DB
	reader *sql.DB
	q      queries
}

var _ binding.Backend = (*Store)(nil)

// Open opens or creates the file at path, whose folder must exist. The file is
// for its owner alone (mode 0600): one that others can read is refused, as is
// one with a newer schema.
func Open(ctx context.Context, path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: %w", err)
	}
	if err := private(path); err != nil {
		return nil, err
	}
	s := &Store{}
	if err := s.open(ctx, path); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, path string) (err error) {
	if s.writer, err = connect(path, 1, "immediate", "foreign_keys(1)"); err != nil {
		return err
	}
	if s.reader, err = connect(path, readers, "deferred", "query_only(1)"); err != nil {
		return err
	}
	if err := toWAL(ctx, s.writer); err != nil {
		return err
	}
	if err := migrate(ctx, s.writer); err != nil {
		return err
	}
	return s.q.prepare(ctx, s.writer, s.reader)
}

func connect(path string, most int, lock, pragma string) (*sql.DB, error) {
	q := url.Values{
		"_txlock": {lock},
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", lockWait.Milliseconds()), "synchronous(FULL)", pragma},
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("sqlitestore: open: %w", err)
	}
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// private makes the file with mode 0600, or refuses one that is not. SQLite
// gives its WAL and shared memory the mode of the file.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("sqlitestore: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("sqlitestore: %s has mode %04o and holds conversations; run chmod 600 on it", path, info.Mode().Perm())
	}
	return nil
}

// toWAL switches the file to a write-ahead log. SQLite does not wait for a lock
// here, so several processes that create the file at once have to try again.
func toWAL(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var mode string
		err := db.QueryRowContext(ctx, "PRAGMA journal_mode=WAL").Scan(&mode)
		switch {
		case err == nil && mode == "wal":
			return nil
		case err == nil:
			return fmt.Errorf("sqlitestore: the file system gives no write-ahead log (journal mode %s); use a local disk", mode)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("sqlitestore: write-ahead log: %w", err)
		}
	}
}

// Close waits for what is under way and closes the file.
func (s *Store) Close() error {
	errs := []error{s.q.close()}
	for _, db := range []*sql.DB{s.reader, s.writer} { // the writer last: it checkpoints
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// write runs do in one immediate transaction. The context bounds the wait for
// the lock; once the lock is held the few statements run to their end, and the
// context decides again at the commit.
func (s *Store) write(ctx context.Context, do func(tx *tx) error) error {
	t, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return storeError(ctx, "begin", err)
	}
	if err := do(&tx{ctx: context.WithoutCancel(ctx), tx: t}); err != nil {
		return errors.Join(err, rollback(t))
	}
	if err := t.Commit(); err != nil {
		return storeError(ctx, "commit", err)
	}
	return nil
}

func rollback(t *sql.Tx) error {
	if err := t.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("sqlitestore: rollback: %w", err)
	}
	return nil
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
