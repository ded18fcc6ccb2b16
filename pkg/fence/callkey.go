package fence

import (
	"crypto/sha256"
	"encoding/hex"
)

// CallKind says whose effect a tool call asks for.
type CallKind string

// MemoryCalls are the calls of a harness's own memory tools.
const MemoryCalls CallKind = "memory"

// CallKey is the idempotency key of the effect that a tool call of the harness's
// own asks for. It keeps that effect apart from what the ToolBroker does for a call
// of the same id, whose key is the id itself; and it is one for each call, so that
// an approval of the call is one for one effect. An id may be as long as a key.
func CallKey(kind CallKind, callID string) string {
	sum := sha256.Sum256([]byte(callID))
	return string(kind) + ":" + hex.EncodeToString(sum[:16])
}
