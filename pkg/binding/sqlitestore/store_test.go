package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/sqlstore"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		os.Exit(child(path))
	}
	goleak.VerifyTestMain(m)
}

func open(tb testing.TB, path string) *sqlitestore.Store {
	tb.Helper()
	s, err := sqlitestore.Open(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// opened is closed at the end of the test.
func opened(tb testing.TB, path string) *sqlitestore.Store {
	tb.Helper()
	s := open(tb, path)
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

func TestSuite(t *testing.T) {
	t.Parallel()
	bindingtest.Run(t, func(t *testing.T) binding.Backend {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "b.db"))
	})
}

// two is a back end whose every call may go to one of two stores on one file.
type two struct {
	bindingtest.Tap
	a, b *sqlitestore.Store
}

func (s two) Close() error { return errors.Join(s.a.Close(), s.b.Close()) }

// TestSuiteOnTwoStores runs the whole suite while its calls alternate between
// two stores on one file, as two services do.
func TestSuiteOnTwoStores(t *testing.T) {
	t.Parallel()
	bindingtest.Run(t, func(t *testing.T) binding.Backend {
		t.Helper()
		path := filepath.Join(t.TempDir(), "b.db")
		s := two{a: open(t, path), b: open(t, path)}
		s.Tap = alternate(s.a, s.b)
		return s
	})
}

// alternate gives its first calls to one and its second ones to the other.
func alternate(a, b binding.Backend) bindingtest.Tap {
	turns := make(chan binding.Backend, 2)
	turns <- a
	turns <- b
	return bindingtest.Tap{To: turning{turns}, On: func(string) bindingtest.Fate { return bindingtest.Deliver }}
}

func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "b.db")
	s := opened(t, path)
	insert(t, s, "hs_1")
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) < 3 {
		t.Fatalf("files %v, %v", names, err)
	}
	for _, n := range names {
		if info, err := os.Stat(n); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", n, info.Mode(), err)
		}
	}
	open := filepath.Join(dir, "open.db")
	if err := os.WriteFile(open, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlitestore.Open(t.Context(), open); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Fatalf("got %v", err)
	}
	if _, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "none", "b.db")); err == nil {
		t.Fatal("a file in a folder that does not exist")
	}
}

func TestPathIsNoQuery(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?mode=memory&x=%41#1.db")
	s := opened(t, path)
	insert(t, s, "hs_1")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if _, err := opened(t, path).Load(t.Context(), "hs_1"); err != nil {
		t.Fatal(err)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.db")
	s := opened(t, path)
	for _, c := range []struct {
		pragma string
		want   [2]string // writer, reader
	}{
		{"journal_mode", [2]string{"wal", "wal"}},
		{"synchronous", [2]string{"2", "2"}}, // FULL
		{"busy_timeout", [2]string{"5000", "5000"}},
		{"query_only", [2]string{"0", "1"}},
	} {
		for i, db := range sqlitestore.Pools(s) {
			var got string
			if err := db.QueryRowContext(t.Context(), "PRAGMA "+c.pragma).Scan(&got); err != nil || got != c.want[i] {
				t.Errorf("%s of pool %d is %q, %v; want %q", c.pragma, i, got, err, c.want[i])
			}
		}
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.db")
	s := open(t, path)
	insert(t, s, "hs_1")
	run(t, sqlitestore.Pools(s)[0], "UPDATE component_versions SET version = version + 1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and is left as it is
		_, err := sqlitestore.Open(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), "version 3") || !strings.Contains(err.Error(), "newer program") {
			t.Fatalf("got %v", err)
		}
	}
}

// A file of a program that forgot nothing is taken over: its runs are found by when they
// ended.
func TestRunsOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.db")
	old, err := sqlstore.Open(t.Context(), path, "binding", sqlitestore.Versions()[:1])
	if err != nil {
		t.Fatal(err)
	}
	run(t, old.Writer(), `INSERT INTO binding_runs (run_id, binding_id, doc) VALUES ('run_1', 'hs_1', CAST('{"run_id":"run_1","binding_id":"hs_1","ended_at":"2026-11-02T03:04:05.123456789Z"}' AS BLOB))`)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	s := opened(t, path)
	d, err := s.LoadRun(t.Context(), "run_1")
	if err != nil || d.Forgotten {
		t.Fatalf("%+v, %v", d, err)
	}
	at := d.EndedAt.Truncate(time.Second)
	got, err := s.EndedRuns(t.Context(), at.Add(time.Second), binding.EndedRun{}, 10)
	if want := []binding.EndedRun{{RunID: "run_1", BindingID: "hs_1", EndedAt: at}}; err != nil || !slices.Equal(got, want) {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.db")
	s := open(t, path)
	insert(t, s, "hs_1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := opened(t, path).Load(t.Context(), "hs_1"); err != nil || r.Epoch != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	other := filepath.Join(t.TempDir(), "not.db")
	if err := os.WriteFile(other, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlitestore.Open(t.Context(), other); err == nil {
		t.Fatal("a text file was opened")
	}
}

// TestLockWaitEndsWithTheContext: while another process holds the file, a write
// waits for its turn and no longer than its context.
func TestLockWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b.db")
	s, other := opened(t, path), opened(t, path)
	insert(t, s, "hs_1")
	held, err := sqlitestore.Pools(other)[0].BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = s.Update(ctx, "hs_1", binding.Filter{}, func(r *binding.Record) error {
		r.Revision++
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 30*time.Second {
		t.Fatalf("after %v: %v", time.Since(start), err)
	}
	if _, err := s.Load(t.Context(), "hs_1"); err != nil { // readers do not wait
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := s.Update(t.Context(), "hs_1", binding.Filter{}, func(r *binding.Record) error {
			r.Revision++
			return nil
		})
		waits <- err
	}()
	if err := held.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Fatal(err)
	}
	if r, err := s.Load(t.Context(), "hs_1"); err != nil || r.Revision != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func insert(tb testing.TB, s *sqlitestore.Store, id string) {
	tb.Helper()
	if _, _, err := s.Insert(tb.Context(), binding.Record{ID: id, Epoch: 1}); err != nil {
		tb.Fatal(err)
	}
}

func run(tb testing.TB, db *sql.DB, text string) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), text); err != nil {
		tb.Fatal(err)
	}
}
