package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
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
	return harness.MemoryRecord{
		Kind: kindName(r.GetKind()), ContentType: r.GetContentType(), Content: r.GetContent(), Revision: r.GetRevision(),
	}, nil
}

// Put writes a record, at most once for the call: a lost answer is asked for
// again under the same key, and what stays unknown is tool_outcome_unknown.
func (m memory) Put(ctx context.Context, callID string, scope harness.MemoryScope, key string, r harness.MemoryRecord) (uint64, error) {
	const op = "facadeclient.Put"
	token, err := m.token(capability.Memory)
	if err != nil {
		return 0, err
	}
	if len(r.Content) > maxMemoryBytes {
		return 0, fault.New(fault.RequestTooLarge, op, fault.Detail("memory: a record has at most 65536 bytes"))
	}
	req := &memoryv1.PutRequest{
		Envelope: m.envelope(memoryKey(callID)).Proto(), Scope: scopeProto(scope), Key: key,
		Kind: kindProto(r.Kind), ContentType: r.ContentType, Content: r.Content,
	}
	if r.Revision > 0 { // otherwise there must be none
		req.ExpectedRevision = &r.Revision
	}
	ctx = rpc.WithToken(ctx, token)
	var res *memoryv1.PutResponse
	out := settle(ctx, m.pause, func(ctx context.Context) error {
		var err error
		res, err = m.client.Put(ctx, req)
		return err
	})
	switch {
	case out.mayHaveActed(ctx):
		return 0, fault.Wrap(out.err, fault.ToolOutcomeUnknown, op)
	case out.err != nil:
		return 0, out.err
	}
	return res.GetRevision(), nil
}

// memoryKey keeps what a memory tool does apart from what the ToolBroker does for
// a call of the same id. An id can be as long as a key.
func memoryKey(callID string) string {
	sum := sha256.Sum256([]byte(callID))
	return "memory:" + hex.EncodeToString(sum[:16])
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
