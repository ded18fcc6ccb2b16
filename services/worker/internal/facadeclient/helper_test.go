package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/capability"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// brokers are the services that a worker calls, behind the real door and on the
// real committed record, with places to step in.
type brokers struct {
	filebrokerv1connect.FileBrokerServiceHandler // what no worker calls

	stand   *rpctest.Stand
	effects *binding.Effects
	url     string

	mu sync.Mutex
	// refuse makes a procedure fail with what it answers, if that is an error.
	refuse func(procedure string) error
	// lose cuts the answer of a procedure off, after it was carried out.
	lose func(procedure string) bool
	// requests that reached a handler, and calls that a tool saw.
	requests, acted []string
	answers         []*toolbrokerv1.UserAnswer // of each call of a tool
	// snapshots by reference.
	snapshots map[string][]byte
	parts     []*filebrokerv1.DownloadResponse
	model     http.Header
	// objects by id, and what came with them; records of memory by scope and key.
	objects map[string]object
	records map[string]*memoryv1.Record
	// partials are uploads in parts, and sent the offsets of all parts that came.
	partials map[string]*partial
	sent     []uint64
	// damage changes a record on its way out.
	damage func(*memoryv1.Record)
}

// object is an upload that is complete.
type object struct {
	info    *filebrokerv1.ObjectInfo
	content string
	parts   int
}

func newBrokers(t *testing.T) *brokers {
	t.Helper()
	s := rpctest.NewStand(t)
	b := &brokers{stand: s, effects: binding.NewEffects(s.Writer), snapshots: map[string][]byte{}, objects: map[string]object{}, records: map[string]*memoryv1.Record{}, partials: map[string]*partial{}}
	callers := identity.AllowList{identity.AnySandbox(s.Domain.TrustDomain())}
	policy := func(a capability.Audience) rpc.Policy {
		return rpc.Policy{Callers: callers, Audience: a, Fence: rpc.RunFence, MaxBytes: 2 << 20}
	}
	srv := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
		toolbrokerv1connect.ToolBrokerServiceCallToolProcedure:        policy(capability.ToolBroker),
		toolbrokerv1connect.ToolBrokerServiceStreamToolProcedure:      policy(capability.ToolBroker),
		threadstatev1connect.ThreadStateServiceLoadHeadProcedure:      policy(capability.ThreadState),
		threadstatev1connect.ThreadStateServiceWriteSnapshotProcedure: policy(capability.ThreadState),
		threadstatev1connect.ThreadStateServiceCommitHeadProcedure:    policy(capability.ThreadState),
		threadstatev1connect.ThreadStateServiceMarkUncertainProcedure: policy(capability.ThreadState),
		filebrokerv1connect.FileBrokerServiceUploadProcedure:          policy(capability.FileBroker),
		filebrokerv1connect.FileBrokerServiceUploadPartProcedure:      policy(capability.FileBroker),
		filebrokerv1connect.FileBrokerServiceUploadStatusProcedure:    policy(capability.FileBroker),
		filebrokerv1connect.FileBrokerServiceCompleteUploadProcedure:  policy(capability.FileBroker),
		memoryv1connect.MemoryServiceGetProcedure:                     policy(capability.Memory),
		memoryv1connect.MemoryServiceSearchProcedure:                  policy(capability.Memory),
		memoryv1connect.MemoryServicePutProcedure:                     policy(capability.Memory),
		memoryv1connect.MemoryServiceDeleteProcedure:                  policy(capability.Memory),
		filebrokerv1connect.FileBrokerServiceDownloadProcedure:        policy(capability.FileBroker),
	}, toolbrokerv1.File_harness_toolbroker_v1_toolbroker_proto, threadstatev1.File_harness_threadstate_v1_threadstate_proto,
		filebrokerv1.File_harness_filebroker_v1_filebroker_proto, memoryv1.File_harness_memory_v1_memory_proto))
	toolbrokerv1connect.RegisterToolBrokerServiceHandler(srv.Connect(), b)
	threadstatev1connect.RegisterThreadStateServiceHandler(srv.Connect(), b)
	filebrokerv1connect.RegisterFileBrokerServiceHandler(srv.Connect(), b)
	memoryv1connect.RegisterMemoryServiceHandler(srv.Connect(), remembering{b})
	srv.HandleHTTP("POST /v1/chat/completions", policy(capability.ModelProxy), http.HandlerFunc(b.chat))
	h, err := srv.Handler()
	must(t, err)
	b.url = s.Serve(t, rpctest.Service{Handler: b.losing(h), ID: rpctest.ServiceID("brokers"), Allow: callers})
	return b
}

// losing carries a request out and cuts its answer off.
func (b *brokers) losing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		lost := b.lose != nil && b.lose(r.URL.Path)
		b.mu.Unlock()
		if !lost {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&unheard{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	})
}

// unheard takes an answer that nobody gets.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u *unheard) WriteHeader(int)             {}
func (u *unheard) Flush()                      {}

func (b *brokers) enter(procedure string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests = append(b.requests, procedure)
	if b.refuse != nil {
		return b.refuse(procedure)
	}
	return nil
}

func (b *brokers) arm(f func(*brokers)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

// count of the requests of a procedure that reached its handler.
func (b *brokers) count(procedure string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r == procedure {
			n++
		}
	}
	return n
}

func (*brokers) ListTools(context.Context, *toolbrokerv1.ListToolsRequest) (*toolbrokerv1.ListToolsResponse, error) {
	return nil, fault.New(fault.NotImplemented, "test")
}

// asksTool asks by this interrupt unless it gets an answer.
const (
	asksTool    = "fs.ask"
	askedByTool = `{"interrupt_id":"input_1","interrupt_type":"form_input","agent_id":"agent-1","prompt":"Which?","fields":[{"field_name":"a","field_type":"text","required":true}]}`
)

// CallTool goes the way of the real broker: at most once for its key.
func (b *brokers) CallTool(ctx context.Context, req *toolbrokerv1.CallToolRequest) (*toolbrokerv1.CallToolResponse, error) {
	if err := b.enter("CallTool"); err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	out, err := b.effects.Do(ctx, g, binding.Effect{Key: g.Envelope().IdempotencyKey, Kind: "tool", ArgsDigest: req.GetToolId() + string(req.GetArguments())},
		func(context.Context) ([]byte, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.acted = append(b.acted, req.GetToolCallId()+" "+req.GetToolId()+" "+string(req.GetArguments()))
			return []byte(`{"content":[]}`), nil
		})
	if err != nil {
		return nil, err
	}
	res := &toolbrokerv1.CallToolResponse{Result: out.Body, IsError: true, Replayed: out.Replayed, ResultRef: "obj-1"}
	if req.GetToolId() == asksTool && req.GetAnswer() == nil {
		res.Interrupt = []byte(askedByTool)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers = append(b.answers, req.GetAnswer())
	return res, nil
}

// testAdapter is the one of the stand's record.
var testAdapter = Adapter{ID: "native", Version: "1"}

func (b *brokers) LoadHead(ctx context.Context, req *threadstatev1.LoadHeadRequest, out threadstatev1connect.ThreadStateServiceLoadHeadServerStream) error {
	if err := b.enter("LoadHead"); err != nil {
		return err
	}
	env, _ := rpc.EnvelopeFrom(ctx)
	r, err := b.stand.Writer.Backend().Load(ctx, env.BindingID)
	if err != nil {
		return err
	}
	if a := req.GetAdapter(); a.GetHarnessId() != r.Identity.HarnessID || a.GetVersion() != r.Identity.AdapterVersion {
		return fault.New(fault.WorkerMismatch, "test")
	}
	if r.Head.Revision == 0 {
		return out.Send(&threadstatev1.LoadHeadResponse{Info: &threadstatev1.HeadInfo{}})
	}
	b.mu.Lock()
	payload := b.snapshots[r.Head.SnapshotRef]
	b.mu.Unlock()
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

func (b *brokers) WriteSnapshot(_ context.Context, in threadstatev1connect.ThreadStateServiceWriteSnapshotServerStream) (*threadstatev1.WriteSnapshotResponse, error) {
	first, err := in.Receive()
	if err != nil {
		return nil, err
	}
	if err := b.enter("WriteSnapshot"); err != nil {
		return nil, err
	}
	payload := bytes.Clone(first.GetChunk())
	for {
		m, err := in.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		payload = append(payload, m.GetChunk()...)
	}
	if want := blob.Of(payload); first.GetInfo().GetSize() != uint64(len(payload)) || !bytes.Equal(first.GetInfo().GetSha256(), want.SHA256[:]) {
		return nil, fault.New(fault.InvalidRequest, "test")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ref := "snap_" + first.GetEnvelope().GetRunId() + "_" + first.GetEnvelope().GetIdempotencyKey()
	if stands, ok := b.snapshots[ref]; ok && !bytes.Equal(stands, payload) {
		return nil, fault.New(fault.IdempotencyConflict, "test")
	}
	b.snapshots[ref] = payload
	return &threadstatev1.WriteSnapshotResponse{SnapshotRef: ref}, nil
}

func (b *brokers) CommitHead(ctx context.Context, req *threadstatev1.CommitHeadRequest) (*threadstatev1.CommitHeadResponse, error) {
	if err := b.enter("CommitHead"); err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	sum := sha256.Sum256(b.snapshots[req.GetSnapshotRef()])
	b.mu.Unlock()
	var asked *binding.Interrupt
	if i := req.GetInterrupt(); i != nil {
		asked = &binding.Interrupt{ID: i.GetInterruptId(), Hash: hex.EncodeToString(i.GetSha256())}
	}
	head, end, err := b.stand.Writer.CommitHead(ctx, g, binding.HeadCommit{
		Interrupt: asked, ExpectedRevision: req.GetExpectedRevision(), Codec: req.GetCodec().GetName(), CodecVersion: req.GetCodec().GetVersion(),
		SnapshotRef: req.GetSnapshotRef(), SHA256: hex.EncodeToString(sum[:]), IdempotencyDigest: g.Envelope().IdempotencyKey,
		LastSequence: req.GetLastSequence(),
	})
	return &threadstatev1.CommitHeadResponse{Revision: head.Revision, End: string(end.Kind)}, err
}

func (b *brokers) MarkUncertain(ctx context.Context, _ *threadstatev1.MarkUncertainRequest) (*threadstatev1.MarkUncertainResponse, error) {
	if err := b.enter("MarkUncertain"); err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	end, err := b.stand.Writer.SetEnd(ctx, g, binding.End{Kind: binding.EndError, Reason: string(fault.ThreadDurabilityUncertain)})
	return &threadstatev1.MarkUncertainResponse{End: string(end.Kind)}, err
}

func (b *brokers) Download(_ context.Context, _ *filebrokerv1.DownloadRequest, out filebrokerv1connect.FileBrokerServiceDownloadServerStream) error {
	if err := b.enter("Download"); err != nil {
		return err
	}
	b.mu.Lock()
	parts := b.parts
	b.mu.Unlock()
	for _, p := range parts {
		if p == nil {
			panic(http.ErrAbortHandler) // the answer breaks here
		}
		if err := out.Send(p); err != nil {
			return err
		}
	}
	return nil
}

// Upload goes the way of the real broker: whole, and at most once for its key.
func (b *brokers) Upload(ctx context.Context, in filebrokerv1connect.FileBrokerServiceUploadServerStream) (*filebrokerv1.UploadResponse, error) {
	if err := b.enter("Upload"); err != nil {
		return nil, err
	}
	var o object
	var handle string
	for {
		m, err := in.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if o.parts == 0 {
			o.info, handle = m.GetInfo(), m.GetHandle()
		}
		o.content += string(m.GetChunk())
		o.parts++
	}
	g, err := rpc.GrantFrom(ctx) // the door asks with the first part
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(o.content))
	if o.info == nil || o.info.GetSize() != uint64(len(o.content)) || !bytes.Equal(o.info.GetSha256(), sum[:]) {
		return nil, fault.New(fault.InvalidRequest, "test")
	}
	out, err := b.effects.Do(ctx, g, binding.Effect{Key: g.Envelope().IdempotencyKey, Kind: "file.upload", ArgsDigest: handle + hex.EncodeToString(sum[:]), Repeatable: true},
		func(context.Context) ([]byte, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			id := "obj-" + handle
			b.objects[id] = o
			b.acted = append(b.acted, handle)
			return []byte(id), nil
		})
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.UploadResponse{ObjectId: string(out.Body), Sha256: sum[:], Replayed: out.Replayed}, nil
}

func (b *brokers) chat(w http.ResponseWriter, r *http.Request) {
	b.arm(func(b *brokers) { b.model = r.Header.Clone() })
	_, _ = io.Copy(w, r.Body)
}
