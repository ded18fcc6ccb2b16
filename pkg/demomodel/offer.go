package demomodel

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
)

// resolve finds the offered tool that a script means. A script may name the
// offered name itself or the tool's id. The broker derives the name from the id,
// and agent programs put a prefix of their own before it or change its end; so
// the closest of several readings counts.
func resolve(wanted string, offers []offer) (found offer, ok bool) {
	best := 0
	var matches []offer
	for _, o := range offers {
		c := o.closeness(wanted)
		if c == 0 || c < best {
			continue
		}
		if c > best {
			best, matches = c, nil
		}
		matches = append(matches, o)
	}
	if len(matches) == 0 {
		return offer{}, false
	}
	// The order in which tools are offered must not decide.
	return slices.MinFunc(matches, func(a, b offer) int {
		return cmp.Or(cmp.Compare(len(a.fullName()), len(b.fullName())), strings.Compare(a.fullName(), b.fullName()))
	}), true
}

// fullName is the name of an offer with its namespace, as an agent without
// namespaces would have written it.
func (o offer) fullName() string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "__" + o.name
}

// closeness is that of the name, with and without its namespace.
func (o offer) closeness(wanted string) int {
	return max(closeness(wanted, o.name), closeness(wanted, o.fullName()))
}

// closeness is 0 for another tool; the higher, the closer.
func closeness(wanted, offered string) int {
	w, o := plain(wanted), plain(offered)
	switch {
	case w == "" || o == "":
		return 0
	case wanted == offered:
		return 5
	case strings.HasSuffix(offered, "_"+digest(wanted)):
		return 4
	case w == o:
		return 3
	case strings.HasSuffix(o, "_"+w):
		return 2
	case marked(o, w):
		return 1
	default:
		return 0
	}
}

// digest is what the broker puts behind the name of an id that is not a name
// already, or too long for one.
func digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
}

// marked reports whether offered is wanted with a mark behind it, and perhaps a
// prefix before it. A mark is told from a word by a number in it.
func marked(offered, wanted string) bool {
	i := strings.LastIndexByte(offered, '_')
	if i < 0 || len(offered)-i <= 4 || !strings.ContainsAny(offered[i:], "0123456789") {
		return false
	}
	return offered[:i] == wanted || strings.HasSuffix(offered[:i], "_"+wanted)
}

// plain is the common form of ids and names: lower case, every run of other
// characters one underscore.
func plain(s string) string {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "_")
}
