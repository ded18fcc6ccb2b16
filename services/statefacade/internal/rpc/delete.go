package rpc

import (
	"context"

	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/services/statefacade/internal/memory"
)

// Delete implements the RPC of this name.
func (m *memoryService) Delete(ctx context.Context, req *memoryv1.DeleteRequest) (*memoryv1.DeleteResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	stored, err := m.domain.Delete(ctx, c, memory.Delete{
		Scope: scopeFrom(req.GetScope()), Key: req.GetKey(), Expected: req.GetExpectedRevision(), CallID: req.GetToolCallId(),
	})
	if err != nil {
		return nil, err
	}
	return &memoryv1.DeleteResponse{Revision: stored.Revision, Replayed: stored.Replayed}, nil
}
