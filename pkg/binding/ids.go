package binding

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
)

// IDs makes the ids of bindings. They are keyed digests: who has one learns
// nothing of whose it is, and cannot tell whether somebody has a binding.
type IDs struct{ key []byte }

// NewIDs uses key, of at least 32 bytes; it must be the same in every replica
// and for as long as the bindings live.
func NewIDs(key []byte) (*IDs, error) {
	if len(key) < 32 {
		return nil, errors.New("binding: the key of the ids has less than 32 bytes; make one with 32 random bytes")
	}
	return &IDs{key: append([]byte(nil), key...)}, nil
}

// BindingID is hs_ and a keyed digest of environment, owner, agent and
// conversation. The owner is subject and organization. Versions are not in it: a
// conversation stays one binding.
func (d *IDs) BindingID(id Identity) string {
	h := hmac.New(sha256.New, d.key)
	fields(h, "binding", id.Environment, id.Subject, id.Organization, id.AgentID, id.ConversationID)
	return "hs_" + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// RunID is the id of a run that is started under an idempotency key: the same
// key is the same run, within one epoch of one binding (write 1).
func RunID(bindingID string, epoch uint32, idempotencyKey string) string {
	return "run_" + digest(epoch, "run", bindingID, idempotencyKey)
}

// ResumeRunID is the id of the run that a resume starts (write 9). Interrupt ids
// come from harnesses, so binding and epoch are part of it.
func ResumeRunID(bindingID string, epoch uint32, interruptID string, revision uint64) string {
	return "run_" + digest(epoch, "resume", bindingID, interruptID, string(binary.BigEndian.AppendUint64(nil, revision)))
}

// ClaimName is the name of the claim of one generation: a repeated create is
// harmless (write 6). It is a DNS label of 35 characters.
func ClaimName(bindingID string, generation uint32) string {
	h := sha256.New()
	fields(h, "claim", bindingID, string(binary.BigEndian.AppendUint32(nil, generation)))
	return "hc-" + hex.EncodeToString(h.Sum(nil)[:16])
}

func digest(epoch uint32, parts ...string) string {
	h := sha256.New()
	fields(h, append(parts, string(binary.BigEndian.AppendUint32(nil, epoch)))...)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// fields writes each part after its length, so that no two lists of parts are
// written alike.
func fields(h hash.Hash, parts ...string) {
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
}
