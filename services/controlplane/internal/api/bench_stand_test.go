//go:build benchtools

package api_test

import (
	"context"
	"path/filepath"
	"testing"

	"connectrpc.com/connect/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
	"cofferdam.dev/services/controlplane/internal/workerclient"
	"cofferdam.dev/services/controlplane/internal/workerclient/workertest"
)

// benchMinter gives everybody the one token.
type benchMinter struct{}

func (benchMinter) Mint(_ context.Context, _ fence.Envelope, _, _ string, scopes []lease.Scope) ([]worker.Token, error) {
	out := make([]worker.Token, len(scopes))
	for i, s := range scopes {
		out[i] = worker.Token{Audience: string(s.Audience), Token: workertest.Token, ID: workertest.Token}
	}
	return out, nil
}

// benchProvider claims the one worker, as often as is asked.
type benchProvider struct {
	*runstest.Provider

	address string
	id      spiffeid.ID
}

func (p benchProvider) Claim(ctx context.Context, c sandbox.Claim) (sandbox.Instance, error) {
	in, err := p.Provider.Claim(ctx, c)
	in.Address, in.ID, in.UID = p.address, p.id, rpctest.Instance
	return in, err
}

// Alive implements sandbox.Provider: the one worker is.
func (benchProvider) Alive(context.Context, string, string) (bool, error) { return true, nil }

// benchStand is the control plane's domain and API on SQLite, with workers behind
// mutual TLS, and a connection to such a worker without a control plane.
type benchStand struct {
	*fixture

	bare *connect.Client
}

func newBenchStand(t *testing.T) *benchStand {
	t.Helper()
	s := rpctest.NewStand(t)
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	controlPlane, workerID := rpctest.ServiceID("controlplane"), rpctest.SandboxID()
	w := &workertest.Worker{}
	nowhere := rpc.Endpoint{Address: "https://nowhere.invalid:1", ID: rpctest.ServiceID("nowhere")} // this worker calls nobody
	address := w.Serve(t, s)
	b := &benchStand{bare: s.Dial(t, (&workertest.Worker{}).Serve(t, s), workerID, controlPlane).RPC}
	b.fixture = newFixture(t, options{domain: runstest.Options{Backend: store, RunTimeout: 600, Change: func(c *runs.Config) {
		w.Commit = committing{c.Writer, c.Guard}.commit
		p := benchProvider{runstest.NewProvider(s.Domain.TrustDomain()), address, workerID}
		c.Provider = p
		c.BeatEvery, c.TakeOverAfter, c.CancelGrace, c.ReconcileEvery = 0, 0, 0, 0 // the defaults
		c.Leases = lease.New(lease.Config{
			Writer: c.Writer, Guard: c.Guard, Provider: p, Workers: workerclient.NewDialer(s.Source(t, controlPlane), s.Telemetry), Minter: benchMinter{},
			TrustDomain: s.Domain.TrustDomain(), Owner: c.Owner, Logger: c.Logger,
			Endpoints: worker.Endpoints{ToolBroker: nowhere, ThreadState: nowhere, Memory: nowhere, FileBroker: nowhere, ModelProxy: nowhere},
		})
	}}})
	return b
}

// committing is the state facade of a benchmark.
type committing struct {
	writer *binding.Writer
	guard  *fence.Guard
}

func (w committing) commit(ctx context.Context, env fence.Envelope, last uint64) error {
	env.IdempotencyKey = "head"
	g, err := w.guard.Admit(ctx, env)
	if err != nil {
		return err
	}
	_, _, err = w.writer.CommitHead(ctx, g, binding.HeadCommit{
		Codec: "test", CodecVersion: 1, SnapshotRef: "snap-" + env.RunID, SHA256: "x", IdempotencyDigest: env.RunID, LastSequence: last,
	})
	return err
}
