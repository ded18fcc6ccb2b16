package authz

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// System is the one object of type system.
const System = "system:cofferdam"

// EveryUser in a tuple stands for every subject there is.
const EveryUser = "user:*"

// maxID bounds an encoded id, in bytes. OpenFGA takes objects of at most 256
// bytes, type included.
const maxID = 200

// UserID is how the subject of a caller is written. Subjects come from outside
// and may hold anything; two of them are never written alike, and none is
// written like [EveryUser].
func UserID(subject string) string { return "user:" + encode(subject) }

// OrganizationID is how an organization is written.
func OrganizationID(organization string) string { return "organization:" + encode(organization) }

// OrganizationMembers is how all members of an organization are written, as the
// user of a tuple.
func OrganizationMembers(organization string) string {
	return OrganizationID(organization) + "#" + Member
}

// AgentID is how an agent is written.
func AgentID(agentID string) string { return "agent:" + encode(agentID) }

// ToolID is how a tool, namespace.name, is written.
func ToolID(toolID string) string { return "tool:" + encode(toolID) }

// encode keeps [A-Za-z0-9._-] and writes every other byte as %XX. What is longer
// than its bound is written as %h and its digest, and an empty id as %n: neither
// can be the encoding of anything else, since h and n are no hexadecimal digits.
func encode(id string) string {
	if id == "" {
		return "%n"
	}
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; plain(c) {
			b.WriteByte(c)
		} else {
			const digits = "0123456789ABCDEF"
			b.Write([]byte{'%', digits[c>>4], digits[c&0xf]})
		}
		if b.Len() > maxID {
			sum := sha256.Sum256([]byte(id))
			return "%h" + hex.EncodeToString(sum[:])
		}
	}
	return b.String()
}

func plain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		return true
	default:
		return false
	}
}
