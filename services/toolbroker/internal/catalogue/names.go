package catalogue

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// maxOffered is the length of the longest offered name. Providers take 64
// characters; agents put a prefix before it.
const maxOffered = 40

// suffixLength of the characters that make a changed name unique: 40 bits.
const suffixLength = 8

func toolID(namespace, name string) string { return namespace + "." + name }

// OfferedName is the name under which a model is offered a tool: at most 40
// characters of [a-z0-9_].
//
// It depends on the id alone, so that no other server or tool changes it. An id
// whose parts can be read back out of namespace_name keeps that name. Every other
// one (with capitals, dots, dashes, a namespace with an underscore, or too long)
// gets a suffix that is a digest of the whole id. Two ids with one name, which
// takes two equal digests, are an error of the configuration.
func OfferedName(id string) string {
	namespace, name, _ := strings.Cut(id, ".")
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '_'
		}
	}, namespace+"_"+name)
	if readable == namespace+"_"+name && !strings.Contains(namespace, "_") && len(readable) <= maxOffered {
		return readable
	}
	sum := sha256.Sum256([]byte(id))
	suffix := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:suffixLength])
	return readable[:min(len(readable), maxOffered-suffixLength-1)] + "_" + suffix
}
