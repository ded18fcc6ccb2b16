// Package brokers has the services that a worker calls, for the conformance
// suite: real servers behind the real door and on the real committed record, with
// places to step in.
package brokers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

// Name of the one service that is all brokers.
const Name = "brokers"

// Brokers are all of them, for all bindings of a Stand.
type Brokers struct {
	filebrokerv1connect.FileBrokerServiceHandler // what the suite's runs do not call

	stand   *rpctest.Stand
	effects *binding.Effects
	url     string

	mu       sync.Mutex
	bindings map[string]*Binding
}

// New serves brokers on a Stand until the end of the test.
func New(t *testing.T, s *rpctest.Stand) *Brokers {
	t.Helper()
	b := &Brokers{stand: s, effects: binding.NewEffects(s.Writer), bindings: map[string]*Binding{}}
	callers := identity.AllowList{identity.AnySandbox(s.Domain.TrustDomain())}
	policy := func(a capability.Audience) rpc.Policy {
		return rpc.Policy{Callers: callers, Audience: a, Fence: rpc.RunFence, MaxBytes: 4 << 20}
	}
	srv := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
		toolbrokerv1connect.ToolBrokerServiceCallToolProcedure:        policy(capability.ToolBroker),
		toolbrokerv1connect.ToolBrokerServiceStreamToolProcedure:      policy(capability.ToolBroker),
		threadstatev1connect.ThreadStateServiceLoadHeadProcedure:      policy(capability.ThreadState),
		threadstatev1connect.ThreadStateServiceWriteSnapshotProcedure: policy(capability.ThreadState),
		threadstatev1connect.ThreadStateServiceCommitHeadProcedure:    policy(capability.ThreadState),
		threadstatev1connect.ThreadStateServiceMarkUncertainProcedure: policy(capability.ThreadState),
		filebrokerv1connect.FileBrokerServiceDownloadProcedure:        policy(capability.FileBroker),
		memoryv1connect.MemoryServiceGetProcedure:                     policy(capability.Memory),
		memoryv1connect.MemoryServicePutProcedure:                     policy(capability.Memory),
	}, toolbrokerv1.File_harness_toolbroker_v1_toolbroker_proto, threadstatev1.File_harness_threadstate_v1_threadstate_proto,
		filebrokerv1.File_harness_filebroker_v1_filebroker_proto, memoryv1.File_harness_memory_v1_memory_proto))
	toolbrokerv1connect.RegisterToolBrokerServiceHandler(srv.Connect(), b)
	threadstatev1connect.RegisterThreadStateServiceHandler(srv.Connect(), b)
	filebrokerv1connect.RegisterFileBrokerServiceHandler(srv.Connect(), b)
	memoryv1connect.RegisterMemoryServiceHandler(srv.Connect(), remembering{Brokers: b})
	model := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // whoever asks has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if c, ok := rpc.ClaimsFrom(r.Context()); ok {
			b.Of(c.BindingID).asksModel(body)
		}
		demomodel.New().ServeHTTP(w, r)
	})
	for _, pattern := range []string{"POST /v1/chat/completions", "POST /v1/responses", "POST /v1/messages", "POST /v1/messages/count_tokens", "POST /v1beta/models/{call}"} {
		srv.HandleHTTP(pattern, policy(capability.ModelProxy), model)
	}
	h, err := srv.Handler()
	if err != nil {
		t.Fatal(err)
	}
	b.url = s.Serve(t, rpctest.Service{Handler: b.losing(h), ID: rpctest.ServiceID(Name), Allow: callers})
	return b
}

// Endpoint of all brokers.
func (b *Brokers) Endpoint() rpc.Endpoint {
	return rpc.Endpoint{Address: b.url, ID: rpctest.ServiceID(Name)}
}

// Of is what the brokers keep for a binding.
func (b *Brokers) Of(bindingID string) *Binding {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bindings[bindingID] == nil {
		b.bindings[bindingID] = newBinding()
	}
	return b.bindings[bindingID]
}

// enter gives the binding of a request, unless its procedure is refused.
func (b *Brokers) enter(ctx context.Context, procedure string) (*Binding, error) {
	env, ok := rpc.EnvelopeFrom(ctx)
	if !ok {
		return nil, fault.New(fault.Internal, "brokers."+procedure)
	}
	x := b.Of(env.BindingID)
	return x, x.refuses(procedure)
}

// losing carries a request out and cuts its answer off.
func (b *Brokers) losing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := b.Of(bindingOf(r))
		x.traced(r.Context(), procedureOf(r), r.Header)
		if !x.loses(procedureOf(r)) {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&unheard{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	})
}

// bindingOf is what a token says, whether it is true or not: the door is what
// decides.
func bindingOf(r *http.Request) string {
	var claims struct {
		BindingID string `json:"binding_id"`
	}
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), ".")
	payload, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	return claims.BindingID
}

// procedureOf is the name of what is called, or Model.
func procedureOf(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/v1") {
		return Model
	}
	return r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
}

// unheard takes an answer that nobody gets.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u *unheard) WriteHeader(int)             {}
func (u *unheard) Flush()                      {}

// LoadHead gives the head that is committed.
func (b *Brokers) LoadHead(ctx context.Context, req *threadstatev1.LoadHeadRequest, out threadstatev1connect.ThreadStateServiceLoadHeadServerStream) error {
	x, err := b.enter(ctx, "LoadHead")
	if err != nil {
		return err
	}
	env, _ := rpc.EnvelopeFrom(ctx)
	r, err := b.stand.Writer.Backend().Load(ctx, env.BindingID)
	if err != nil {
		return err
	}
	if r.Head.Revision == 0 {
		return out.Send(&threadstatev1.LoadHeadResponse{Info: &threadstatev1.HeadInfo{}})
	}
	if c := req.GetCodec(); r.Head.Codec != c.GetName() || r.Head.CodecVersion != c.GetVersion() {
		return fault.New(fault.InvalidRequest, "brokers.LoadHead", fault.Detail("codec: not that of the head"))
	}
	payload := x.snapshot(r.Head.SnapshotRef)
	sum, err := hex.DecodeString(r.Head.SHA256)
	if err != nil {
		return err
	}
	info := &threadstatev1.HeadInfo{
		Revision: r.Head.Revision, SnapshotRef: r.Head.SnapshotRef,
		Snapshot: &threadstatev1.SnapshotInfo{Size: uint64(len(payload)), Sha256: sum},
	}
	for chunk := range slices.Chunk(payload, blob.MaxChunkBytes) {
		if err := out.Send(&threadstatev1.LoadHeadResponse{Info: info, Chunk: chunk}); err != nil {
			return err
		}
		info = nil
	}
	return nil
}

// WriteSnapshot keeps a snapshot.
func (b *Brokers) WriteSnapshot(ctx context.Context, in threadstatev1connect.ThreadStateServiceWriteSnapshotServerStream) (*threadstatev1.WriteSnapshotResponse, error) {
	first, err := in.Receive() // brings the envelope
	if err != nil {
		return nil, err
	}
	x, err := b.enter(ctx, "WriteSnapshot")
	if err != nil {
		return nil, err
	}
	if first.GetInfo().GetSize() > blob.MaxBytes || len(first.GetInfo().GetSha256()) != sha256.Size {
		return nil, fault.New(fault.InvalidRequest, "brokers.WriteSnapshot")
	}
	want := blob.Content{Size: int64(first.GetInfo().GetSize()), SHA256: [sha256.Size]byte(first.GetInfo().GetSha256())} //nolint:gosec // at most 64 MiB
	var payload bytes.Buffer
	began := false
	err = blob.Receive(&payload, want, func() ([]byte, error) {
		if !began {
			began = true
			return first.GetChunk(), nil
		}
		m, err := in.Receive()
		return m.GetChunk(), err
	})
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidRequest, "brokers.WriteSnapshot")
	}
	ref := "snap_" + first.GetEnvelope().GetRunId() + "_" + first.GetEnvelope().GetIdempotencyKey()
	x.keep(ref, payload.Bytes())
	return &threadstatev1.WriteSnapshotResponse{SnapshotRef: ref}, nil
}

// CommitHead makes write 5 of the record.
func (b *Brokers) CommitHead(ctx context.Context, req *threadstatev1.CommitHeadRequest) (*threadstatev1.CommitHeadResponse, error) {
	x, err := b.enter(ctx, "CommitHead")
	if err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(x.snapshot(req.GetSnapshotRef()))
	commit := binding.HeadCommit{
		ExpectedRevision: req.GetExpectedRevision(), Codec: req.GetCodec().GetName(), CodecVersion: req.GetCodec().GetVersion(),
		SnapshotRef: req.GetSnapshotRef(), SHA256: hex.EncodeToString(sum[:]), IdempotencyDigest: g.Envelope().IdempotencyKey,
		LastSequence: req.GetLastSequence(),
	}
	if i := req.GetInterrupt(); i != nil {
		commit.Interrupt = &binding.Interrupt{ID: i.GetInterruptId(), Hash: hex.EncodeToString(i.GetSha256())}
	}
	head, end, err := b.stand.Writer.CommitHead(ctx, g, commit)
	return &threadstatev1.CommitHeadResponse{Revision: head.Revision, End: string(end.Kind)}, err
}

// MarkUncertain ends a run as uncertain, where its end is open.
func (b *Brokers) MarkUncertain(ctx context.Context, _ *threadstatev1.MarkUncertainRequest) (*threadstatev1.MarkUncertainResponse, error) {
	if _, err := b.enter(ctx, "MarkUncertain"); err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	end, err := b.stand.Writer.SetEnd(ctx, g, binding.End{Kind: binding.EndError, Reason: string(fault.ThreadDurabilityUncertain)})
	return &threadstatev1.MarkUncertainResponse{End: string(end.Kind)}, err
}
