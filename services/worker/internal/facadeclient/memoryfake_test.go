package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"strings"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/rpc"
)

// remembering is the memory service.
type remembering struct{ *brokers }

func (b remembering) Get(_ context.Context, req *memoryv1.GetRequest) (*memoryv1.GetResponse, error) {
	if err := b.enter("Get"); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.records[req.GetScope().String()+" "+req.GetKey()]
	if !ok {
		return nil, fault.New(fault.NotFound, "test")
	}
	if b.damage != nil {
		b.damage(r)
	}
	return &memoryv1.GetResponse{Record: r}, nil
}

func (b remembering) Put(ctx context.Context, req *memoryv1.PutRequest) (*memoryv1.PutResponse, error) {
	if err := b.enter("Put"); err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	at := req.GetScope().String() + " " + req.GetKey()
	out, err := b.effects.Do(ctx, g, binding.Effect{Key: g.Envelope().IdempotencyKey, Kind: "memory.put", ArgsDigest: at + string(req.GetContent()), Repeatable: true},
		func(context.Context) ([]byte, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			stands := b.records[at]
			if (req.ExpectedRevision == nil) != (stands == nil) || stands.GetRevision() != req.GetExpectedRevision() {
				return []byte{0}, nil
			}
			sum := sha256.Sum256(req.GetContent())
			b.records[at] = &memoryv1.Record{
				Key: req.GetKey(), Kind: req.GetKind(), ContentType: req.GetContentType(), Content: req.GetContent(),
				Revision: stands.GetRevision() + 1, Sha256: sum[:], Sources: req.GetSources(),
			}
			b.acted = append(b.acted, at)
			return []byte{byte(stands.GetRevision()%10 + 1)}, nil
		})
	if err != nil {
		return nil, err
	}
	if out.Body[0] == 0 {
		return nil, fault.New(fault.MemoryRevisionConflict, "test")
	}
	return &memoryv1.PutResponse{
		Revision: uint64(out.Body[0]), Replayed: out.Replayed, Redactions: uint32(bytes.Count(req.GetContent(), []byte("secret"))), //nolint:gosec // a few
	}, nil
}

func (b remembering) Search(_ context.Context, req *memoryv1.SearchRequest) (*memoryv1.SearchResponse, error) {
	if err := b.enter("Search"); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	res := &memoryv1.SearchResponse{RankedBy: max(req.GetRank(), memoryv1.Rank_RANK_LEXICAL)}
	for at, r := range b.records {
		if strings.HasPrefix(at, req.GetScope().String()+" ") && bytes.Contains(r.GetContent(), []byte(req.GetQuery())) && len(res.GetMatches()) < int(req.GetLimit()) {
			res.Matches = append(res.Matches, &memoryv1.Match{Key: r.GetKey(), Kind: r.GetKind(), Revision: r.GetRevision(), Excerpt: string(r.GetContent())})
		}
	}
	return res, nil
}

func (b remembering) Delete(ctx context.Context, req *memoryv1.DeleteRequest) (*memoryv1.DeleteResponse, error) {
	if err := b.enter("Delete"); err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	at := req.GetScope().String() + " " + req.GetKey()
	out, err := b.effects.Do(ctx, g, binding.Effect{Key: g.Envelope().IdempotencyKey, Kind: "memory.delete", ArgsDigest: at, Repeatable: true},
		func(context.Context) ([]byte, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			stands := b.records[at]
			if stands.GetRevision() != req.GetExpectedRevision() {
				return []byte{0}, nil
			}
			delete(b.records, at)
			b.acted = append(b.acted, "delete "+at)
			return []byte{1}, nil
		})
	switch {
	case err != nil:
		return nil, err
	case out.Body[0] == 0:
		return nil, fault.New(fault.MemoryRevisionConflict, "test")
	}
	return &memoryv1.DeleteResponse{Revision: req.GetExpectedRevision() + 1, Replayed: out.Replayed}, nil
}
