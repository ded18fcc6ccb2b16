package binding

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"cofferdam.dev/pkg/fault"
)

// Decisions that let a carried call be made.
const (
	decisionApprove = "approve"
	decisionEdit    = "edit"
)

// ToolCallDigest tells one call from one of another tool or with other
// arguments, which are canonical JSON (strictjson.Canonical). It is the digest of
// a call in the ledger, and that of a grant.
func ToolCallDigest(toolID string, canonical []byte) string {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(toolID))))
	h.Write([]byte(toolID))
	h.Write(canonical)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// ErrNotGranted says that nobody has approved this very call.
var ErrNotGranted = errors.New("binding: nobody has approved this call")

// granted reports whether the run carries a decision to make the call of this key
// with these arguments. The key of an effect is used once, and so is the grant;
// only write 9 makes one, from a caller's decision.
func (r Run) granted(key, digest string) bool {
	call, _, _ := strings.Cut(key, "#")
	return slices.ContainsFunc(r.Carried, func(c Carried) bool {
		return c.ToolCallID == call && c.ArgsDigest != "" && c.ArgsDigest == digest &&
			(c.Decision == decisionApprove || c.Decision == decisionEdit)
	})
}

func notGranted(op string) error {
	return fault.Wrap(ErrNotGranted, fault.ApprovalRequired, op, fault.SideEffects(SideEffectsNone))
}
