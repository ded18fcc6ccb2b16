package rpc

import (
	"context"

	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/services/statefacade/internal/memory"
)

// Put implements the RPC of this name.
func (m *memoryService) Put(ctx context.Context, req *memoryv1.PutRequest) (*memoryv1.PutResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	put := memory.Put{
		Scope:       scopeFrom(req.GetScope()),
		Key:         req.GetKey(),
		Kind:        kindFrom(req.GetKind()),
		ContentType: req.GetContentType(),
		Content:     req.GetContent(),
		Expected:    req.ExpectedRevision,
		Retention:   req.GetRetention(),
		CallID:      req.GetToolCallId(),
	}
	for _, s := range req.GetSources() {
		put.Sources = append(put.Sources, memory.Source{Key: s.GetKey(), Revision: s.GetRevision()})
	}
	stored, err := m.domain.Put(ctx, c, put)
	if err != nil {
		return nil, err
	}
	return &memoryv1.PutResponse{
		Revision: stored.Revision, Replayed: stored.Replayed, Redactions: uint32(stored.Redactions), //nolint:gosec // at most one a byte of the content
	}, nil
}
