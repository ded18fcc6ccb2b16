package statefacade

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore"
	"cofferdam.dev/services/statefacade/internal/threadstate"
	"cofferdam.dev/services/statefacade/internal/threadstate/snapshotstore"
)

// A state facade that runs removes snapshots that lost and memory whose time is over,
// again and again, whether or not anybody asks it for something.
func TestRunSweeps(t *testing.T) {
	stand, dir := rpctest.NewStand(t), t.TempDir()
	cfg := &Config{
		Base: service.Base{Listen: "unix://" + dir + "/listen.sock"}, Store: stand.StorePath, StateStore: dir + "/state.db",
		BlobURL: "file://" + dir + "/snapshots", SweepInterval: time.Millisecond, Issuer: stand.Minter.Issuer(),
	}
	s, err := New(t.Context(), cfg, stand.Runtime(t, &cfg.Base, rpctest.ServiceID("statefacade")), Deps{Backend: stand.Backend, Keys: stand.Minter.Keys()})
	must(t, err)
	s.memoryEvery = time.Millisecond
	snapshots, err := snapshotstore.OpenSQLite(t.Context(), cfg.StateStore)
	must(t, err)
	t.Cleanup(func() { must(t, snapshots.Close()) })
	memories, err := memorystore.OpenSQLite(t.Context(), cfg.StateStore)
	must(t, err)
	t.Cleanup(func() { must(t, memories.Close()) })

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for n := range 3 {
		key := fmt.Sprint("key-", n)
		lose(t, snapshots, fmt.Sprint("snapshot-", n))
		expire(t, memories, key)
		waittest.Until(t, "the snapshot that lost is removed", func() bool {
			all, err := snapshots.List(t.Context(), rpctest.BindingID)
			must(t, err)
			return len(all) == 0
		})
		waittest.Until(t, "the memory whose time is over is deleted", func() bool {
			audit, err := memories.Audit(t.Context(), "namespace", key)
			must(t, err)
			return audit[len(audit)-1].Operation == memory.OpExpire
		})
	}
	stop()
	must(t, <-ended)
}

// lose keeps a snapshot of a run that is over: it may be gone when this returns.
func lose(t *testing.T, s threadstate.Snapshots, ref string) {
	t.Helper()
	_, err := s.Stage(t.Context(), threadstate.Snapshot{Payload: []byte("state"), Entry: threadstate.Entry{
		At: time.Now().Add(-time.Hour),
		Info: threadstate.Info{
			Ref: ref, Owner: threadstate.Owner{BindingID: rpctest.BindingID, Epoch: rpctest.Epoch, Generation: rpctest.Generation, RunID: "run_that_is_over"},
			Codec: threadstate.Codec{Name: "test", Version: 1}, Content: blob.Of([]byte("state")),
		},
	}}, threadstate.MaxSnapshotsPerRun)
	must(t, err)
}

// expire keeps a record whose time is over.
func expire(t *testing.T, s memory.Store, key string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	_, err := s.Change(t.Context(), memory.Change{ID: key, Operation: memory.OpPut, Namespace: "namespace", Record: memory.Record{
		Key: key, Kind: memory.KindSemantic, ContentType: memory.TypeText, Content: []byte("content"), SHA256: sha256.Sum256([]byte("content")),
		UpdatedAt: then, ExpiresAt: then.Add(time.Minute), Retention: "week",
	}}, memory.MaxRecords)
	must(t, err)
}
