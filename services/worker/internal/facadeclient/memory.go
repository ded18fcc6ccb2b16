package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/harness"
)

// maxMemoryBytes of one record.
const maxMemoryBytes = 64 << 10

type memory struct {
	authority
	client memoryv1connect.MemoryServiceClient
}

// Get reads a record and checks its SHA-256.
func (m memory) Get(ctx context.Context, scope harness.MemoryScope, key string) (harness.MemoryRecord, error) {
	const op = "facadeclient.Get"
	token, err := m.token(capability.Memory)
	if err != nil {
		return harness.MemoryRecord{}, err
	}
	ctx = rpc.WithToken(ctx, token)
	var r *memoryv1.Record
	if out := repeat(ctx, m.pause, func(ctx context.Context) error {
		res, err := m.client.Get(ctx, &memoryv1.GetRequest{Envelope: m.envelope("get").Proto(), Scope: scopeProto(scope), Key: key})
		r = res.GetRecord()
		return err
	}); out.err != nil {
		return harness.MemoryRecord{}, out.err
	}
	if sum := sha256.Sum256(r.GetContent()); !bytes.Equal(sum[:], r.GetSha256()) {
		return harness.MemoryRecord{}, fault.Wrap(errors.New("memory record does not have its SHA-256"), fault.PersistenceFailed, op)
	}
	out := harness.MemoryRecord{
		Kind: kindName(r.GetKind()), ContentType: r.GetContentType(), Content: r.GetContent(), Revision: r.GetRevision(),
	}
	for _, s := range r.GetSources() {
		out.Sources = append(out.Sources, harness.MemorySource{Key: s.GetKey(), Revision: s.GetRevision()})
	}
	return out, nil
}

// Search asks for records by words or by meaning.
func (m memory) Search(ctx context.Context, scope harness.MemoryScope, q harness.MemoryQuery) (harness.MemoryFound, error) {
	token, err := m.token(capability.Memory)
	if err != nil {
		return harness.MemoryFound{}, err
	}
	ctx = rpc.WithToken(ctx, token)
	req := &memoryv1.SearchRequest{
		Envelope: m.envelope("search").Proto(), Scope: scopeProto(scope), Query: q.Text, Rank: rankProto(q.Rank),
		Limit: uint32(q.Limit), //nolint:gosec // the facade refuses what it is not
	}
	var res *memoryv1.SearchResponse
	if out := repeat(ctx, m.pause, func(ctx context.Context) error {
		var err error
		res, err = m.client.Search(ctx, req)
		return err
	}); out.err != nil {
		return harness.MemoryFound{}, out.err
	}
	found := harness.MemoryFound{Rank: rankName(res.GetRankedBy())}
	for _, f := range res.GetMatches() {
		found.Matches = append(found.Matches, harness.MemoryMatch{Key: f.GetKey(), Kind: kindName(f.GetKind()), Revision: f.GetRevision(), Excerpt: f.GetExcerpt()})
	}
	return found, nil
}

// Put writes a record, at most once for the call: a lost answer is asked for
// again under the same key, and what stays unknown is tool_outcome_unknown.
func (m memory) Put(ctx context.Context, callID string, scope harness.MemoryScope, key string, r harness.MemoryRecord) (harness.MemoryWritten, error) {
	const op = "facadeclient.Put"
	if len(r.Content) > maxMemoryBytes {
		return harness.MemoryWritten{}, fault.New(fault.RequestTooLarge, op, fault.Detail("memory: a record has at most 65536 bytes"))
	}
	req := &memoryv1.PutRequest{
		Envelope: m.envelope(fence.CallKey(fence.MemoryCalls, callID)).Proto(), Scope: scopeProto(scope), Key: key,
		Kind: kindProto(r.Kind), ContentType: r.ContentType, Content: r.Content, ToolCallId: callID,
	}
	if r.Revision > 0 { // otherwise there must be none
		req.ExpectedRevision = &r.Revision
	}
	for _, s := range r.Sources {
		req.Sources = append(req.Sources, &memoryv1.Source{Key: s.Key, Revision: s.Revision})
	}
	var res *memoryv1.PutResponse
	err := m.change(ctx, op, func(ctx context.Context) error {
		var err error
		res, err = m.client.Put(ctx, req)
		return err
	})
	if err != nil {
		return harness.MemoryWritten{}, err
	}
	return harness.MemoryWritten{Revision: res.GetRevision(), Redactions: int(res.GetRedactions())}, nil
}

// Delete removes a record, at most once for the call, as Put writes one.
func (m memory) Delete(ctx context.Context, callID string, scope harness.MemoryScope, key string, revision uint64) error {
	req := &memoryv1.DeleteRequest{
		Envelope: m.envelope(fence.CallKey(fence.MemoryCalls, callID)).Proto(), Scope: scopeProto(scope), Key: key,
		ExpectedRevision: revision, ToolCallId: callID,
	}
	return m.change(ctx, "facadeclient.Delete", func(ctx context.Context) error {
		_, err := m.client.Delete(ctx, req)
		return err
	})
}

// change asks for an effect until it is settled, or its outcome stays unknown.
func (m memory) change(ctx context.Context, op string, ask func(context.Context) error) error {
	token, err := m.token(capability.Memory)
	if err != nil {
		return err
	}
	ctx = rpc.WithToken(ctx, token)
	out := settle(ctx, m.pause, ask)
	if out.mayHaveActed(ctx) {
		return fault.Wrap(out.err, fault.ToolOutcomeUnknown, op)
	}
	return out.err
}

// scopeProto gives SCOPE_UNSPECIFIED for what is none; the facade refuses it.
func scopeProto(s harness.MemoryScope) memoryv1.Scope {
	switch s {
	case harness.MemoryUser:
		return memoryv1.Scope_SCOPE_USER
	case harness.MemoryAgent:
		return memoryv1.Scope_SCOPE_AGENT
	case harness.MemoryOrganization:
		return memoryv1.Scope_SCOPE_ORGANIZATION
	default:
		return memoryv1.Scope_SCOPE_UNSPECIFIED
	}
}

// The kinds of records, as a harness names them.
const (
	kindSemantic          = "semantic"
	kindEpisodicReference = "episodic_reference"
	kindProcedural        = "procedural"
)

// kindProto gives KIND_UNSPECIFIED for what is none; the facade refuses it.
func kindProto(kind string) memoryv1.Kind {
	switch kind {
	case kindSemantic:
		return memoryv1.Kind_KIND_SEMANTIC
	case kindEpisodicReference:
		return memoryv1.Kind_KIND_EPISODIC_REFERENCE
	case kindProcedural:
		return memoryv1.Kind_KIND_PROCEDURAL
	default:
		return memoryv1.Kind_KIND_UNSPECIFIED
	}
}

func rankProto(r harness.MemoryRank) memoryv1.Rank {
	if r == harness.MemoryByMeaning {
		return memoryv1.Rank_RANK_VECTOR
	}
	return memoryv1.Rank_RANK_LEXICAL
}

func rankName(r memoryv1.Rank) harness.MemoryRank {
	if r == memoryv1.Rank_RANK_VECTOR {
		return harness.MemoryByMeaning
	}
	return harness.MemoryByWords
}

func kindName(k memoryv1.Kind) string {
	switch k {
	case memoryv1.Kind_KIND_SEMANTIC:
		return kindSemantic
	case memoryv1.Kind_KIND_EPISODIC_REFERENCE:
		return kindEpisodicReference
	case memoryv1.Kind_KIND_PROCEDURAL:
		return kindProcedural
	case memoryv1.Kind_KIND_UNSPECIFIED:
	}
	return ""
}
