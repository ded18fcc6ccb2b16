package rpc

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/fault"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

func codecFrom(c *threadstatev1.Codec) threadstate.Codec {
	return threadstate.Codec{Name: c.GetName(), Version: c.GetVersion()}
}

// interruptFrom gives nil for a run that ends as success. The schema has checked
// how long the digest is.
func interruptFrom(i *threadstatev1.PendingInterrupt) *threadstate.Interrupt {
	if i == nil {
		return nil
	}
	out := &threadstate.Interrupt{ID: i.GetInterruptId()}
	copy(out.SHA256[:], i.GetSha256())
	return out
}

// callerFrom is what the door found out about a request for memory.
func callerFrom(ctx context.Context) (memory.Caller, error) {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return memory.Caller{}, err
	}
	claims, ok := rpc.ClaimsFrom(ctx)
	if !ok {
		return memory.Caller{}, fault.Wrap(errors.New("no capability behind the door"), fault.Internal, "rpc.caller")
	}
	return memory.Caller{Grant: g, ID: claims.Subject, Scopes: claims.MemoryScopes}, nil
}

// scopeFrom gives "" for what is no scope; the domain refuses it.
func scopeFrom(s memoryv1.Scope) memory.Scope {
	switch s {
	case memoryv1.Scope_SCOPE_USER:
		return memory.ScopeUser
	case memoryv1.Scope_SCOPE_AGENT:
		return memory.ScopeAgent
	case memoryv1.Scope_SCOPE_ORGANIZATION:
		return memory.ScopeOrganization
	case memoryv1.Scope_SCOPE_UNSPECIFIED:
	}
	return ""
}

// kindFrom gives "" for what is no kind; the domain refuses it.
func kindFrom(k memoryv1.Kind) memory.Kind {
	switch k {
	case memoryv1.Kind_KIND_SEMANTIC:
		return memory.KindSemantic
	case memoryv1.Kind_KIND_EPISODIC_REFERENCE:
		return memory.KindEpisodicReference
	case memoryv1.Kind_KIND_PROCEDURAL:
		return memory.KindProcedural
	case memoryv1.Kind_KIND_UNSPECIFIED:
	}
	return ""
}

func kindProto(k memory.Kind) memoryv1.Kind {
	switch k {
	case memory.KindSemantic:
		return memoryv1.Kind_KIND_SEMANTIC
	case memory.KindEpisodicReference:
		return memoryv1.Kind_KIND_EPISODIC_REFERENCE
	case memory.KindProcedural:
		return memoryv1.Kind_KIND_PROCEDURAL
	}
	return memoryv1.Kind_KIND_UNSPECIFIED
}

// rankFrom gives "" for what is no rank; the domain has none of that name.
func rankFrom(r memoryv1.Rank) memory.Rank {
	switch r {
	case memoryv1.Rank_RANK_UNSPECIFIED, memoryv1.Rank_RANK_LEXICAL:
		return memory.RankLexical
	case memoryv1.Rank_RANK_VECTOR:
		return memory.RankVector
	}
	return ""
}

func rankProto(r memory.Rank) memoryv1.Rank {
	switch r {
	case memory.RankLexical:
		return memoryv1.Rank_RANK_LEXICAL
	case memory.RankVector:
		return memoryv1.Rank_RANK_VECTOR
	}
	return memoryv1.Rank_RANK_UNSPECIFIED
}

func recordProto(r memory.Record) *memoryv1.Record {
	out := &memoryv1.Record{
		Key: r.Key, Kind: kindProto(r.Kind), ContentType: r.ContentType, Content: r.Content,
		Revision: r.Revision, Sha256: r.SHA256[:], UpdatedAt: timestamppb.New(r.UpdatedAt),
	}
	if !r.ExpiresAt.IsZero() {
		out.ExpiresAt = timestamppb.New(r.ExpiresAt)
	}
	for _, s := range r.Origin.Sources {
		out.Sources = append(out.Sources, &memoryv1.Source{Key: s.Key, Revision: s.Revision})
	}
	return out
}
