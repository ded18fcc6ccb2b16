package capability

import (
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/capability/internal/signingkey"
)

// A service reads its signing keys again by itself, until it is closed: one that did
// not would neither sign nor publish after a minute.
func TestKeysAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	cfg, err := parse(t, "--store", dir+"/store.db", "--key-file", dir+"/keys.json", "--create-key")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(slog.DiscardHandler)
		tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "test", Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(t.Context(), *cfg, Deps{Logger: logger, Telemetry: tel})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * signingkey.StaleAfter) //nolint:forbidigo // synctest's clock
		if err := s.keys.Check(t.Context()); err != nil {
			t.Errorf("after some minutes: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * signingkey.StaleAfter) //nolint:forbidigo // synctest's clock
		if s.keys.Check(t.Context()) == nil {
			t.Error("they are read after the end")
		}
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(dir + "/store.db"); err != nil {
		t.Error(err)
	}
}
