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

func (b remembering) Put(ctx context.Context, req *memoryv1.PutRequest) (*memoryv1.PutResponse, error) {
	x, err := b.enter(ctx, "Put")
	if err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
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
