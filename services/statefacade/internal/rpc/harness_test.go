package rpc_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/blob/blobstore"
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
	blobs    *blobs
	path     string // of the state store
	policy   memory.Policy
	// ahead is how far the memory service's clock is.
	ahead time.Duration
	dir   string // of the object store
	// embedder makes the vector rank; nil is none.
	embedder memory.Embedder
}

func (o *opened) now() time.Time { return time.Now().Add(o.ahead) }

// open builds the service as its package does, with places to step in.
func open(t *testing.T, s *rpctest.Stand) *opened {
	t.Helper()
	return openWith(t, s, memory.Policy{})
}

func openWith(t *testing.T, s *rpctest.Stand, policy memory.Policy) *opened {
	t.Helper()
	o := &opened{stand: s, path: filepath.Join(t.TempDir(), "state.db"), policy: policy, dir: filepath.Join(t.TempDir(), "snapshots")}
	snapshots, err := snapshotstore.OpenSQLite(t.Context(), o.path)
	must(t, err)
	t.Cleanup(func() { must(t, snapshots.Close()) })
	remembered, err := memorystore.OpenSQLite(t.Context(), o.path)
	must(t, err)
	t.Cleanup(func() { must(t, remembered.Close()) })
	large, err := blobstore.Open(t.Context(), blobstore.Address{URL: "file://" + o.dir})
	must(t, err)
	t.Cleanup(func() { must(t, large.Close()) })
	o.hooks, o.blobs, o.memories = &hooks{Snapshots: snapshots}, &blobs{Store: large}, &memories{Store: remembered}
	o.handler, err = rpc.NewHandler(o.config())
	must(t, err)
	return o
}

func (o *opened) config() rpc.Config {
	s := o.stand
	writer := binding.NewWriter(s.Backend, time.Now)
	return rpc.Config{
		TrustDomain: s.Domain.TrustDomain(), Logger: s.Logger, Verifier: s.Minter.Verifier(), Guard: fence.NewGuard(writer, time.Now), Telemetry: s.Telemetry,
		ThreadState: o.thread(),
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
		Secrets: scanner, Logger: o.stand.Logger, Now: o.now, Embedder: o.embedder,
	})
}

// thread is the domain of thread state.
func (o *opened) thread() *threadstate.Service {
	return threadstate.New(binding.NewWriter(o.stand.Backend, time.Now), o.hooks, o.blobs, o.stand.Logger, time.Now)
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
	for _, f := range o.files(t) {
		_, _ = fmt.Fprintln(&out, f)
	}
	return out.String()
}

// files are those of the object store, temporary ones too.
func (o *opened) files(t *testing.T) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(o.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	}))
	return out
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

func (h *hooks) Stage(ctx context.Context, s threadstate.Snapshot, most int) (threadstate.Entry, error) {
	if f := h.beforeStage; f != nil {
		h.beforeStage = nil
		f()
	}
	stands, err := h.Snapshots.Stage(ctx, s, most)
	if h.stageError != nil {
		err = h.stageError
	}
	return stands, err
}

// blobs is the real object store with places to step in.
type blobs struct {
	blob.Store
	// room is how many bytes a disk has that gets full; 0 is enough.
	room int
	// deleteError is what a delete answers.
	deleteError error
}

func (b *blobs) Create(ctx context.Context, key string) (blob.Writer, error) {
	w, err := b.Store.Create(ctx, key)
	if err != nil || b.room == 0 {
		return w, err
	}
	return &full{Writer: w, room: b.room}, nil
}

func (b *blobs) Delete(ctx context.Context, key string) error {
	if b.deleteError != nil {
		return b.deleteError
	}
	return b.Store.Delete(ctx, key)
}

// full is a writer of a disk that gets full.
type full struct {
	blob.Writer
	room int
}

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, syscall.ENOSPC
	}
	return f.Writer.Write(p)
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
	return sessionOf(t, openWith(t, rpctest.NewStand(t), policy), audience)
}

func sessionOf(t *testing.T, o *opened, audience capability.Audience) *session {
	t.Helper()
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

var testAdapter = &threadstatev1.Adapter{HarnessId: "native", Version: "1"}

// parts of a good write.
func parts(e fence.Envelope, payload string) []*threadstatev1.WriteSnapshotRequest {
	content := blob.Of([]byte(payload))
	var out []*threadstatev1.WriteSnapshotRequest
	for rest := payload; len(out) == 0 || rest != ""; {
		n := min(len(rest), blob.MaxChunkBytes)
		out = append(out, &threadstatev1.WriteSnapshotRequest{Envelope: e.Proto(), Chunk: []byte(rest[:n])})
		rest = rest[n:]
	}
	out[0].Codec = testCodec
	out[0].Info = &threadstatev1.SnapshotInfo{Size: uint64(len(payload)), Sha256: content.SHA256[:]}
	return out
}

// send sends the parts of a write.
func send(ctx context.Context, c threadstatev1connect.ThreadStateServiceClient, parts ...*threadstatev1.WriteSnapshotRequest) (string, error) {
	stream, err := c.WriteSnapshot(ctx)
	if err != nil {
		return "", err
	}
	for _, p := range parts {
		if stream.Send(p) != nil {
			break // the answer says why
		}
	}
	res, err := stream.CloseAndReceive()
	return res.GetSnapshotRef(), err
}

// loaded is what a load gave.
type loaded struct {
	*threadstatev1.HeadInfo
	payload []byte
}

// load reads a head to its end.
func load(ctx context.Context, c threadstatev1connect.ThreadStateServiceClient, req *threadstatev1.LoadHeadRequest) (l loaded, err error) {
	stream, err := c.LoadHead(ctx, req)
	if err != nil {
		return loaded{}, err
	}
	defer func() { _ = stream.Close() }()
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return l, err
		}
		if m.GetInfo() != nil {
			l.HeadInfo = m.GetInfo()
		}
		l.payload = append(l.payload, m.GetChunk()...)
	}
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
	return o.pendingAs(t, o.stand.Envelope().IdempotencyKey, payload)
}

func (o *opened) pendingAs(t *testing.T, key, payload string) string {
	t.Helper()
	e := o.stand.Envelope()
	e.IdempotencyKey = key
	codec := threadstate.Codec{Name: testCodec.GetName(), Version: testCodec.GetVersion()}
	next := parts(e, payload)
	ref, err := o.thread().WriteSnapshot(t.Context(), o.stand.Grant(t, e), codec, blob.Of([]byte(payload)), func() ([]byte, error) {
		if len(next) == 0 {
			return nil, io.EOF
		}
		p := next[0]
		next = next[1:]
		return p.GetChunk(), nil
	})
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
