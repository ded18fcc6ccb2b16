package memorystore_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore/memorystoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSQLite(t *testing.T) {
	memorystoretest.Run(t, func(t *testing.T) memory.Store {
		t.Helper()
		s, err := memorystore.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}
