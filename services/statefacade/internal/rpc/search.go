package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/services/statefacade/internal/memory"
)

// Search implements the RPC of this name.
func (m *memoryService) Search(ctx context.Context, req *memoryv1.SearchRequest) (*memoryv1.SearchResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	q := memory.Query{Text: req.GetQuery(), Limit: int(req.GetLimit()), Rank: rankFrom(req.GetRank())}
	for _, k := range req.GetKinds() {
		q.Kinds = append(q.Kinds, kindFrom(k))
	}
	found, err := m.domain.Search(ctx, c, scopeFrom(req.GetScope()), q)
	if err != nil {
		return nil, err
	}
	res := &memoryv1.SearchResponse{RankedBy: rankProto(found.Rank)}
	for _, f := range found.Matches {
		res.Matches = append(res.Matches, &memoryv1.Match{
			Key: f.Key, Kind: kindProto(f.Kind), ContentType: f.ContentType, Revision: f.Revision,
			UpdatedAt: timestamppb.New(f.UpdatedAt), Excerpt: f.Excerpt, Score: f.Score,
		})
	}
	return res, nil
}
