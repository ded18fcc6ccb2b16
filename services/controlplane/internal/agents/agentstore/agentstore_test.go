package agentstore_test

import (
	"context"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	agentstoretest.Run(t, func(*testing.T) func(*testing.T) agents.Store {
		one := &agentstoretest.Memory{}
		return func(*testing.T) agents.Store { return one }
	})
}

func TestSQLite(t *testing.T) {
	agentstoretest.Run(t, func(t *testing.T) func(*testing.T) agents.Store {
		t.Helper()
		path := filepath.Join(t.TempDir(), "agents.db")
		return func(t *testing.T) agents.Store {
			t.Helper()
			s, err := agentstore.OpenSQLite(t.Context(), path)
			return opened(t, s, err)
		}
	})
}

func TestMongoDB(t *testing.T) {
	server := mongodbstoretest.Server(t)
	agentstoretest.Run(t, func(t *testing.T) func(*testing.T) agents.Store {
		t.Helper()
		uri := mongodbstoretest.Lossy(t, server)
		t.Cleanup(func() {
			db := mongodbstoretest.Reopen(t, uri)
			defer func() { _ = db.Close() }() // only drops
			if err := db.Drop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return func(t *testing.T) agents.Store {
			t.Helper()
			s, err := agentstore.OpenMongoDB(t.Context(), mongodbstoretest.Reopen(t, uri))
			return opened(t, s, err)
		}
	})
}

func opened[S agentstore.Store](t *testing.T, s S, err error) agents.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	return s
}
