package brokers

import (
	"context"
	"crypto/sha256"
	"strconv"

	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
)

// remembering is the memory service.
type remembering struct {
	memoryv1connect.MemoryServiceHandler // what the suite's runs do not call
	*Brokers
}

func (b remembering) Get(ctx context.Context, req *memoryv1.GetRequest) (*memoryv1.GetResponse, error) {
	x, err := b.enter(ctx, "Get")
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r, ok := x.records[req.GetScope().String()+" "+req.GetKey()]
	if !ok {
		return nil, fault.New(fault.NotFound, "brokers.Get")
	}
	copied, ok := proto.Clone(r).(*memoryv1.Record)
	if !ok {
		return nil, fault.New(fault.Internal, "brokers.Get")
	}
	return &memoryv1.GetResponse{Record: copied}, nil
}

// Scopes as workers name them.
func scopeOf(s harness.MemoryScope) memoryv1.Scope {
	return map[harness.MemoryScope]memoryv1.Scope{
		harness.MemoryUser: memoryv1.Scope_SCOPE_USER, harness.MemoryAgent: memoryv1.Scope_SCOPE_AGENT, harness.MemoryOrganization: memoryv1.Scope_SCOPE_ORGANIZATION,
	}[s]
}

// Remember puts a record where none is, as an administrator does.
func (x *Binding) Remember(scope harness.MemoryScope, key, text string) {
	sum := sha256.Sum256([]byte(text))
	x.mu.Lock()
	defer x.mu.Unlock()
	x.records[scopeOf(scope).String()+" "+key] = &memoryv1.Record{
		Key: key, Kind: memoryv1.Kind_KIND_SEMANTIC, ContentType: "text/plain", Content: []byte(text), Revision: 1, Sha256: sum[:],
	}
}

// Remembered is the text of a record, and its kind in the words of the schema.
func (x *Binding) Remembered(scope harness.MemoryScope, key string) (text, kind string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.records[scopeOf(scope).String()+" "+key]
	return string(r.GetContent()), r.GetKind().String()
}

func (b remembering) Put(ctx context.Context, req *memoryv1.PutRequest) (*memoryv1.PutResponse, error) {
	x, err := b.enter(ctx, "Put")
	if err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetScope() != memoryv1.Scope_SCOPE_USER { // what is shared is for administrators to write
		return nil, fault.New(fault.MemoryScopeDenied, "brokers.Put")
	}
	sum := sha256.Sum256(req.GetContent())
	effect := binding.Effect{Key: g.Envelope().IdempotencyKey, Kind: "memory.put", ArgsDigest: req.GetKey() + string(sum[:])}
	out, err := b.effects.Do(ctx, g, effect, func(context.Context) ([]byte, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		at := req.GetScope().String() + " " + req.GetKey()
		stands := x.records[at].GetRevision()
		if stands != req.GetExpectedRevision() {
			return nil, &binding.NotBegun{Err: fault.New(fault.MemoryRevisionConflict, "brokers.Put")}
		}
		x.records[at] = &memoryv1.Record{
			Key: req.GetKey(), Kind: req.GetKind(), ContentType: req.GetContentType(), Content: req.GetContent(), Revision: stands + 1, Sha256: sum[:],
		}
		return strconv.AppendUint(nil, stands+1, 10), nil
	})
	if err != nil {
		return nil, err
	}
	revision, err := strconv.ParseUint(string(out.Body), 10, 64)
	return &memoryv1.PutResponse{Revision: revision, Replayed: out.Replayed}, err
}
