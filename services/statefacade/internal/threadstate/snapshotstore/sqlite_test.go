package snapshotstore_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/services/statefacade/internal/threadstate"
	"cofferdam.dev/services/statefacade/internal/threadstate/snapshotstore"
	"cofferdam.dev/services/statefacade/internal/threadstate/snapshotstore/snapshotstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *snapshotstore.SQLite {
	t.Helper()
	s, err := snapshotstore.OpenSQLite(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSQLite(t *testing.T) {
	snapshotstoretest.Run(t, func(t *testing.T) threadstate.Snapshots {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "state.db"))
	})
}

func TestSQLiteSurvivesClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	first, err := snapshotstore.OpenSQLite(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	snap := threadstate.Snapshot{Payload: []byte("state"), Entry: threadstate.Entry{Info: threadstate.Info{Ref: "ref"}}}
	if _, err := first.Stage(t.Context(), snap, 1); err != nil {
		t.Fatal(err)
	}
	if err := first.Confirm(t.Context(), "ref"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, path).Load(t.Context(), "ref"); err != nil || string(got.Payload) != "state" {
		t.Errorf("got %q, %v", got.Payload, err)
	}
}
