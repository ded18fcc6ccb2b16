package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/sqlstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const table = `CREATE TABLE part_numbers (n INTEGER PRIMARY KEY) STRICT`

func open(t *testing.T, path string, migrations ...string) *sqlstore.DB {
	t.Helper()
	db, err := sqlstore.Open(t.Context(), path, "part", migrations)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func insert(n int) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO part_numbers VALUES (?)`, n)
		return err
	}
}

func count(t *testing.T, db *sqlstore.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM part_numbers`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFileIsForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := open(t, path, table)
	if err := db.Write(t.Context(), insert(1)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(p)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", filepath.Base(p), info, err)
		}
	}
}

func TestReadableFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlstore.Open(t.Context(), path, "part", []string{table}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v", err)
	}
}

func TestNewerFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	older := open(t, path, table)
	if err := older.Check(t.Context()); err != nil {
		t.Error(err)
	}
	open(t, path, table, `CREATE TABLE part_later (n INTEGER) STRICT`)
	// One that runs already is not ready any more, and one that starts is refused.
	if err := older.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("got %v", err)
	}
	if _, err := sqlstore.Open(t.Context(), path, "part", []string{table}); err == nil || !strings.Contains(err.Error(), "newer program") {
		t.Errorf("got %v", err)
	}
}

func TestOlderFileIsMigrated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := open(t, path, table).Write(t.Context(), insert(7)); err != nil {
		t.Fatal(err)
	}
	db := open(t, path, table, `ALTER TABLE part_numbers ADD COLUMN more INTEGER NOT NULL DEFAULT 5`)
	var n, more int
	if err := db.QueryRow(t.Context(), `SELECT n, more FROM part_numbers`).Scan(&n, &more); err != nil || n != 7 || more != 5 {
		t.Errorf("got %d, %d, %v", n, more, err)
	}
}

func TestManyOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			db, err := sqlstore.Open(t.Context(), path, "part", []string{table})
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(db.Write(t.Context(), insert(n)), db.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := count(t, open(t, path, table)); n != 8 {
		t.Errorf("%d rows, want 8", n)
	}
}

func TestErrorWritesNothing(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "state.db"), table)
	boom := errors.New("boom")
	err := db.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(insert(1)(ctx, tx), boom)
	})
	if !errors.Is(err, boom) || count(t, db) != 0 {
		t.Errorf("got %v and %d rows", err, count(t, db))
	}
}

func TestEndedContextIsNotAcknowledged(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "state.db"), table)
	ctx, cancel := context.WithCancel(t.Context())
	err := db.Write(ctx, func(inner context.Context, tx *sql.Tx) error {
		cancel()
		return insert(1)(inner, tx)
	})
	if err == nil && count(t, db) != 1 || err != nil && count(t, db) != 0 {
		t.Errorf("got %v and %d rows", err, count(t, db))
	}
}
