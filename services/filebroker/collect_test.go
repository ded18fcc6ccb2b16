package filebroker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/catalogue"
)

// A file broker that runs collects files that nothing refers to, again and again,
// whether or not anybody asks it for something.
func TestRunCollects(t *testing.T) {
	stand, dir := rpctest.NewStand(t), t.TempDir()
	cfg := &Config{
		Base: service.Base{Listen: "unix://" + dir + "/listen.sock"}, Store: stand.StorePath, HandleStore: dir + "/handles.db",
		BlobURL: "file://" + dir + "/files", QuotaBytes: 1 << 20, CollectAfter: time.Hour, CollectEvery: time.Millisecond, Issuer: stand.Minter.Issuer(),
	}
	s, err := New(t.Context(), cfg, stand.Runtime(t, &cfg.Base, rpctest.ServiceID("filebroker")), Deps{Backend: stand.Backend, Keys: stand.Minter.Keys()})
	must(t, err)
	entries, err := catalogue.OpenSQLite(t.Context(), cfg.HandleStore)
	must(t, err)
	t.Cleanup(func() { must(t, entries.Close()) })

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for n := range 3 {
		// Staged by a request that ended an hour ago.
		must(t, entries.StageObject(t.Context(), files.Object{
			ID: fmt.Sprint("object-", n), BindingID: rpctest.BindingID, Epoch: rpctest.Epoch, RunID: rpctest.RunID,
			Info: files.Info{Content: blob.Of([]byte("content")), MIME: "text/plain", Name: "a"},
		}, time.Now().Add(-time.Hour), files.Quota{Bytes: cfg.QuotaBytes, Objects: files.MaxObjects, Now: time.Now()}))
		waittest.Until(t, "the object that nobody completed is collected", func() bool {
			page, err := entries.Entries(t.Context(), "", 1)
			must(t, err)
			return len(page) == 0
		})
	}
	stop()
	must(t, <-ended)
}
