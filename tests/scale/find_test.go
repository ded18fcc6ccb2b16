package scale

import (
	"bytes"
	"strings"
	"testing"
)

// A canary is counted once for each time it stands, whole or cut off, and by
// whose it is; what is nobody's is none.
func TestFinder(t *testing.T) {
	mine := &conversation{name: "mine", canary: canaryPrefix + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
	other := &conversation{name: "other", canary: canaryPrefix + "ZYXWVUTSRQPONMLKJIHGFEDCBA"}
	for name, row := range map[string]struct {
		text          string
		owner         *conversation
		seen, crossed int
	}{
		"nothing":              {text: "text", owner: mine},
		"own, twice":           {text: mine.canary + mine.canary, owner: mine, seen: 2},
		"another's":            {text: "a " + other.canary + " b", owner: mine, crossed: 1},
		"both":                 {text: mine.canary + "," + other.canary, owner: mine, seen: 1, crossed: 1},
		"another's, torn":      {text: other.canary[:len(canaryPrefix)+known] + "\x00garbage", owner: mine, crossed: 1},
		"cut before it tells":  {text: other.canary[:len(canaryPrefix)+known-1], owner: mine},
		"written over":         {text: canaryPrefix + "ABC\x00\x00\x00\x00\x00\x00" + other.canary, owner: mine, crossed: 1},
		"a place of nobody":    {text: mine.canary, crossed: 1},
		"prefix in a prefix":   {text: "scale-" + canaryPrefix + canaryPrefix + other.canary, owner: mine, crossed: 1},
		"known to nobody here": {text: canaryPrefix + strings.Repeat("Q", 26), owner: mine},
	} {
		var r Report
		var said bytes.Buffer
		newFinder([]*conversation{mine, other}, &r, &said).in("a place", row.text, row.owner)
		if r.Places != 1 || r.CanariesSeen != row.seen || r.CrossedCanaries != row.crossed {
			t.Errorf("%s: %+v", name, r)
		}
		if lines := strings.Count(said.String(), "a place\n"); lines != row.crossed {
			t.Errorf("%s: it says %q", name, said.String())
		}
	}
}
