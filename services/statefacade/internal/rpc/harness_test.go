package rpc_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/memory/memorystore"
	"cofferdam.dev/services/statefacade/internal/memory/secrets"
	"cofferdam.dev/services/statefacade/internal/rpc"
	"cofferdam.dev/services/statefacade/internal/threadstate"
	"cofferdam.dev/services/statefacade/internal/threadstate/snapshotstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened is a real state facade on a Stand.
type opened struct {
	stand    *rpctest.Stand
	handler  http.Handler
	hooks    *hooks
	memories *memories
	path     string // of the state store
	policy   memory.Policy
	// ahead is how far the memory service's clock is.
	ahead time.Duration
}

func (o *opened) now() time.Time { return time.Now().Add(o.ahead) }

// open builds the service as its package does, with places to step in.
func open(t *testing.T, s *rpctest.Stand) *opened {
	t.Helper()
	return openWith(t, s, memory.Policy{})
}

func openWith(t *testing.T, s *rpctest.Stand, policy memory.Policy) *opened {
	t.Helper()
	o := &opened{stand: s, path: filepath.Join(t.TempDir(), "state.db"), policy: policy}
	snapshots, err := snapshotstore.OpenSQLite(t.Context(), o.path)
	must(t, err)
	t.Cleanup(func() { must(t, snapshots.Close()) })
	remembered, err := memorystore.OpenSQLite(t.Context(), o.path)
	must(t, err)
	t.Cleanup(func() { must(t, remembered.Close()) })
	o.hooks, o.memories = &hooks{Snapshots: snapshots}, &memories{Store: remembered}
	o.handler, err = rpc.NewHandler(o.config())
	must(t, err)
	return o
}

func (o *opened) config() rpc.Config {
	s := o.stand
	writer := binding.NewWriter(s.Backend, time.Now)
	return rpc.Config{
		TrustDomain: s.Domain.TrustDomain(), Logger: s.Logger, Verifier: s.Minter.Verifier(), Guard: fence.NewGuard(writer, time.Now), Telemetry: s.Telemetry,
		ThreadState: threadstate.New(writer, o.hooks, s.Logger, time.Now),
		Memory:      o.service(o.policy),
	}
}

// service is the memory service of an operator with this policy.
func (o *opened) service(policy memory.Policy) *memory.Service {
	writer := binding.NewWriter(o.stand.Backend, time.Now)
	scanner, err := secrets.New()
	if err != nil {
		panic(err) // it reads what is compiled in
	}
	return memory.New(memory.Config{
		Records: o.stand.Backend, Effects: binding.NewEffects(writer), Store: o.memories, Policy: policy,
		Secrets: scanner, Logger: o.stand.Logger, Now: o.now,
	})
}

// served is the service as a Door wants it.
func (o *opened) served() rpctest.Service {
	return rpctest.Service{
		Handler: o.handler,
		ID:      rpctest.ServiceID("statefacade"),
		Allow:   rpc.Callers(o.stand.Domain.TrustDomain()),
		State:   o.state,
	}
}

// state is every row of every table of the state store.
func (o *opened) state(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+o.path)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	var out strings.Builder
	for _, query := range []string{
		"SELECT * FROM thread_snapshots ORDER BY 1", "SELECT * FROM memory_records ORDER BY 1, 2", "SELECT * FROM memory_changes ORDER BY 1",
		"SELECT * FROM memory_words ORDER BY 1, 2, 3",
	} {
		dump(t, db, query, &out)
	}
	return out.String()
}

func dump(t *testing.T, db *sql.DB, query string, out *strings.Builder) {
	t.Helper()
	rows, err := db.QueryContext(context.WithoutCancel(t.Context()), query)
	must(t, err)
	defer func() { must(t, rows.Close()) }()
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		must(t, rows.Scan(values...))
		_, _ = fmt.Fprint(out, query)
		for _, v := range values {
			if p, ok := v.(*any); ok {
				_, _ = fmt.Fprintf(out, " %v", *p)
			}
		}
		_, _ = fmt.Fprintln(out)
	}
	must(t, rows.Err())
}

// hooks is the real snapshot store with places to step in.
type hooks struct {
	threadstate.Snapshots
	beforeStage func()
	stageError  error
}

func (h *hooks) BeforeWrite(f func()) { h.beforeStage = f }

func (h *hooks) Stage(ctx context.Context, s threadstate.Snapshot, most int) (threadstate.Info, error) {
	if f := h.beforeStage; f != nil {
		h.beforeStage = nil
		f()
	}
	info, err := h.Snapshots.Stage(ctx, s, most)
	if h.stageError != nil {
		err = h.stageError
	}
	return info, err
}

// memories is the real memory store with a place to step in.
type memories struct {
	memory.Store
	// changeError is what a change answers once, after it was made.
	changeError error
}

func (m *memories) Change(ctx context.Context, c memory.Change, most int) (uint64, error) {
	revision, err := m.Store.Change(ctx, c, most)
	if m.changeError != nil {
		err, m.changeError = m.changeError, nil
	}
	return revision, err
}

// session is an open service with a client of the sandbox in the lease.
type session struct {
	*opened
	thread   threadstatev1connect.ThreadStateServiceClient
	memory   memoryv1connect.MemoryServiceClient
	baseURL  string
	audience capability.Audience
	scopes   []string
}

func newSession(t *testing.T, audience capability.Audience) *session {
	t.Helper()
	return newSessionWith(t, audience, memory.Policy{})
}

func newSessionWith(t *testing.T, audience capability.Audience, policy memory.Policy) *session {
	t.Helper()
	o := openWith(t, rpctest.NewStand(t), policy)
	s := &session{opened: o, audience: audience, baseURL: o.stand.Serve(t, o.served())}
	if audience == capability.Memory {
		s.scopes = []string{"user"}
	}
	c := o.stand.Dial(t, s.baseURL, rpctest.ServiceID("statefacade"), rpctest.SandboxID())
	s.thread = threadstatev1connect.NewThreadStateServiceClient(c.RPC)
	s.memory = memoryv1connect.NewMemoryServiceClient(c.RPC)
	return s
}

// ctx carries the capability of the sandbox for the run of e.
func (s *session) ctx(t *testing.T, e fence.Envelope) context.Context {
	t.Helper()
	return pkgrpc.WithToken(t.Context(), s.stand.Minter.Mint(capability.Claims{
		Audience: s.audience, Subject: rpctest.SandboxID(), MemoryScopes: s.scopes,
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	}))
}

var testCodec = &threadstatev1.Codec{Name: "native", Version: 1}

func writeRequest(e *fencev1.Envelope, payload string) *threadstatev1.WriteSnapshotRequest {
	sum := sha256.Sum256([]byte(payload))
	return &threadstatev1.WriteSnapshotRequest{Envelope: e, Codec: testCodec, Payload: []byte(payload), Sha256: sum[:]}
}

func putRequest(e *fencev1.Envelope, key, content string, expected *uint64) *memoryv1.PutRequest {
	return &memoryv1.PutRequest{
		Envelope: e, Scope: memoryv1.Scope_SCOPE_USER, Key: key, Kind: memoryv1.Kind_KIND_SEMANTIC,
		ContentType: "text/plain", Content: []byte(content), ExpectedRevision: expected,
	}
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("got %v, want code %q", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pending writes a snapshot past the wire and gives its reference.
func (o *opened) pending(t *testing.T, payload string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(payload))
	writer := threadstate.New(o.stand.Writer, o.hooks, o.stand.Logger, time.Now)
	ref, err := writer.WriteSnapshot(t.Context(), o.stand.Grant(t, o.stand.Envelope()), threadstate.Codec{Name: testCodec.GetName(), Version: testCodec.GetVersion()}, []byte(payload), sum[:])
	must(t, err)
	return ref
}

// remembered puts a record into the user scope, past the wire.
func (o *opened) remembered(t *testing.T, key, content string) {
	t.Helper()
	o.rememberedIn(t, memory.Policy{}, memory.ScopeUser, key, content)
}

func (o *opened) rememberedIn(t *testing.T, policy memory.Policy, scope memory.Scope, key, content string) {
	t.Helper()
	c := memory.Caller{Grant: o.stand.Grant(t, o.stand.Envelope()), ID: rpctest.SandboxID(), Scopes: []string{string(scope)}}
	_, err := o.service(policy).Put(t.Context(), c, memory.Put{
		Scope: scope, Key: key, Kind: memory.KindSemantic, ContentType: memory.TypeText, Content: []byte(content),
	})
	must(t, err)
}

// namespace is the one that there is.
func (o *opened) namespace(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+o.path)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	var namespace string
	must(t, db.QueryRowContext(t.Context(), `SELECT DISTINCT namespace FROM memory_records`).Scan(&namespace))
	return namespace
}
