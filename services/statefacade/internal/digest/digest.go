// Package digest names things by what they are made of.
package digest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// Of is the unpadded base64url of a SHA-256 over the parts, each with its
// length, so that no two lists of parts have the same input.
func Of(parts ...string) string {
	h := sha256.New()
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
