package catalogue_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/catalogue"
	"cofferdam.dev/services/filebroker/internal/files/catalogue/cataloguetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSQLite(t *testing.T) {
	cataloguetest.Run(t, func(t *testing.T) files.Catalogue {
		t.Helper()
		s, err := catalogue.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "handles.db"))
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
