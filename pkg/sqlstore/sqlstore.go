// Package sqlstore opens the SQLite files of the services, all with the same
// durability and the same bounds. The tables of several components, also of
// several services and of the binding store, may share one file.
package sqlstore

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
)

const (
	// lockWait is how long a write waits for another process's, at most; its
	// context may end it sooner.
	lockWait = 5 * time.Second
	readers  = 4
)

// DB is one file. It is safe for concurrent use, also beside other DBs on the
// same file.
type DB struct {
	// writer has one connection: the writers of a process queue here, with their
	// contexts, instead of at the file's lock.
	writer *sql.DB
	reader *sql.DB
	// component and version are what this program knows.
	component string
	version   int
}

// Open opens or makes the file, whose folder must exist, and brings the tables
// of one component to the last of its versions: migrations[n] makes version n+1
// of version n. The file is for its owner alone (mode 0600); one that others can
// read is refused, as is one with a newer version.
func Open(ctx context.Context, path, component string, migrations []string) (*DB, error) {
	db := &DB{component: component, version: len(migrations)}
	if err := db.open(ctx, path, component, migrations); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s store: %w", component, err), db.Close())
	}
	return db, nil
}

func (d *DB) open(ctx context.Context, path, component string, migrations []string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := private(path); err != nil {
		return err
	}
	if d.writer, err = connect(path, 1, "immediate", "foreign_keys(1)"); err != nil {
		return err
	}
	if d.reader, err = connect(path, readers, "deferred", "query_only(1)"); err != nil {
		return err
	}
	if err := toWAL(ctx, d.writer); err != nil {
		return err
	}
	return d.Write(ctx, func(ctx context.Context, tx *sql.Tx) error { return migrate(ctx, tx, component, migrations) })
}

// connect: every commit is on disk before it is acknowledged.
func connect(path string, most int, lock, pragma string) (*sql.DB, error) {
	q := url.Values{
		"_txlock": {lock},
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", lockWait.Milliseconds()), "synchronous(FULL)", pragma},
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
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
		return err
	}
	info, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o, and what it holds is private; run chmod 600 on it", path, info.Mode().Perm())
	}
	return nil
}

// toWAL switches the file to a write-ahead log. SQLite does not wait for a lock
// here, so several processes that make the file at once have to try again.
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
			return fmt.Errorf("the file system gives no write-ahead log (journal mode %s); use a local disk", mode)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("write-ahead log: %w", err)
		}
	}
}

func migrate(ctx context.Context, tx *sql.Tx, component string, migrations []string) error {
	const versions = `CREATE TABLE IF NOT EXISTS component_versions (component TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT`
	if _, err := tx.ExecContext(ctx, versions); err != nil {
		return err
	}
	var version int
	err := tx.QueryRowContext(ctx, `SELECT version FROM component_versions WHERE component = ?`, component).Scan(&version)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	}
	if err := refuseNewer(version, len(migrations)); err != nil {
		return err
	}
	for _, m := range migrations[version:] {
		if _, err := tx.ExecContext(ctx, m); err != nil {
			return err
		}
	}
	const set = `INSERT INTO component_versions (component, version) VALUES (?, ?) ON CONFLICT (component) DO UPDATE SET version = excluded.version`
	_, err = tx.ExecContext(ctx, set, component, len(migrations))
	return err
}

// Write runs do in one transaction that holds the file's write lock from its
// beginning. ctx bounds the wait for the lock and decides again at the commit;
// in between the few statements run to their end, with the context that do gets.
// After an error of do nothing is written; any other error leaves that open.
func (d *DB) Write(ctx context.Context, do func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := d.writer.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := do(context.WithoutCancel(ctx), tx); err != nil {
		if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
			return errors.Join(err, rerr)
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Writer is the one connection that writes, for statements that are prepared
// once. Transactions go through Write.
func (d *DB) Writer() *sql.DB { return d.writer }

// Reader is the pool that reads what is committed, for the same.
func (d *DB) Reader() *sql.DB { return d.reader }

// QueryRow reads what is committed.
func (d *DB) QueryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return d.reader.QueryRowContext(ctx, query, args...)
}

// Check asks whether the file answers, and still has the version that this
// program knows: another one may have moved it on.
func (d *DB) Check(ctx context.Context) error {
	var version int
	if err := d.QueryRow(ctx, `SELECT version FROM component_versions WHERE component = ?`, d.component).Scan(&version); err != nil {
		return err
	}
	return refuseNewer(version, d.version)
}

func refuseNewer(stands, known int) error {
	if stands <= known {
		return nil
	}
	return fmt.Errorf("the file has version %d of its tables and this program knows up to %d; start the newer program", stands, known)
}

// Close waits for what is under way and closes the file.
func (d *DB) Close() error {
	var errs []error
	for _, db := range []*sql.DB{d.reader, d.writer} { // the writer last: it checkpoints
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}
