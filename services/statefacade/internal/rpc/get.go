package rpc

import (
	"context"

	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
)

// Get implements the RPC of this name.
func (m *memoryService) Get(ctx context.Context, req *memoryv1.GetRequest) (*memoryv1.GetResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	r, err := m.domain.Get(ctx, c, scopeFrom(req.GetScope()), req.GetKey())
	if err != nil {
		return nil, err
	}
	return &memoryv1.GetResponse{Record: recordProto(r)}, nil
}
