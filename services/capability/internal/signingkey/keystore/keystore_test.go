package keystore_test

import (
	"context"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/services/capability/internal/signingkey"
	"cofferdam.dev/services/capability/internal/signingkey/keystore"
	"cofferdam.dev/services/capability/internal/signingkey/keystore/keystoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSQLite(t *testing.T) {
	keystoretest.Run(t, func(t *testing.T) func(*testing.T) signingkey.Store {
		t.Helper()
		path := filepath.Join(t.TempDir(), "keys.db")
		return func(t *testing.T) signingkey.Store {
			t.Helper()
			s, err := keystore.OpenSQLite(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			closeAfter(t, s.Close)
			return s
		}
	})
}

func TestMongoDB(t *testing.T) {
	server := mongodbstoretest.Server(t)
	keystoretest.Run(t, func(t *testing.T) func(*testing.T) signingkey.Store {
		t.Helper()
		uri := mongodbstoretest.Lossy(t, server)
		t.Cleanup(func() {
			db := mongodbstoretest.Reopen(t, uri)
			defer func() { _ = db.Close() }() // only drops
			if err := db.Drop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return func(t *testing.T) signingkey.Store {
			t.Helper()
			s, err := keystore.OpenMongoDB(t.Context(), mongodbstoretest.Reopen(t, uri))
			if err != nil {
				t.Fatal(err)
			}
			closeAfter(t, s.Close)
			return s
		}
	})
}

func closeAfter(t *testing.T, f func() error) {
	t.Helper()
	t.Cleanup(func() {
		if err := f(); err != nil {
			t.Error(err)
		}
	})
}
