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

// maxSuffix is the length of the longest suffix: 160 bits.
const maxSuffix = 32

func toolID(namespace, name string) string { return namespace + "." + name }

// OfferedName is the name under which a model is offered a tool: at most 40
// characters of [a-z0-9_].
//
// It depends on the id alone, so that no other server or tool changes it. An id
// whose parts can be read back out of namespace_name keeps that name. Every other
// one (with capitals, dots, dashes, a namespace with an underscore, or too long)
// gets a suffix that is a digest of the whole id.
func OfferedName(id string) string {
	name, exact := readable(id)
	if exact && len(name) <= maxOffered {
		return name
	}
	return withSuffix(name, id, suffixLength)
}

// OfferedNames are the names of tools that stand in one catalogue, by id. Each is
// OfferedName, unless a tool before it in the list has that name: two digests may
// be equal, and a name may look like another one with its suffix. The later one
// then gets a longer digest. So a tool that is added at the end renames no other,
// and the same list always gives the same names.
func OfferedNames(ids []string) map[string]string {
	byID, taken := make(map[string]string, len(ids)), make(map[string]bool, len(ids))
	for _, id := range ids {
		if _, again := byID[id]; again {
			continue
		}
		name := OfferedName(id)
		for n := suffixLength + 8; taken[name] && n <= maxSuffix; n += 8 {
			plain, _ := readable(id)
			name = withSuffix(plain, id, n)
		}
		byID[id], taken[name] = name, true
	}
	return byID
}

// readable is namespace_name in the characters that are allowed; exact says that
// the id can be read back out of it.
func readable(id string) (name string, exact bool) {
	namespace, tool, _ := strings.Cut(id, ".")
	plain := namespace + "_" + tool
	name = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '_'
		}
	}, plain)
	return name, name == plain && !strings.Contains(namespace, "_")
}

func withSuffix(name, id string, length int) string {
	sum := sha256.Sum256([]byte(id))
	suffix := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:length])
	return name[:min(len(name), maxOffered-length-1)] + "_" + suffix
}
