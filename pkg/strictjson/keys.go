package strictjson

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// keys are the keys that one object has shown so far. A few are compared one
// by one and cost no allocation; more go into maps, so that an object of a
// hundred thousand keys stays linear.
type keys struct {
	n      int
	few    [8][]byte
	exact  map[string]struct{}
	folded map[string]struct{}
}

// add reports whether the key stands there already, exactly or but for case.
func (k *keys) add(key []byte) (twice, variant bool) {
	k.n++
	if k.n <= len(k.few) {
		for _, other := range k.few[:k.n-1] {
			twice = twice || bytes.Equal(other, key)
			variant = variant || bytes.EqualFold(other, key)
		}
		k.few[k.n-1] = key
		return twice, variant
	}
	if k.exact == nil {
		k.exact, k.folded = make(map[string]struct{}), make(map[string]struct{})
		for _, other := range k.few {
			k.put(other)
		}
	}
	return k.put(key)
}

func (k *keys) put(key []byte) (twice, variant bool) {
	f := fold(key)
	_, twice = k.exact[string(key)]
	_, variant = k.folded[f]
	k.exact[string(key)], k.folded[f] = struct{}{}, struct{}{}
	return twice, variant
}

// has reports whether exactly this key was added.
func (k *keys) has(name string) bool {
	for _, key := range k.few[:min(k.n, len(k.few))] {
		if string(key) == name {
			return true
		}
	}
	_, ok := k.exact[name]
	return ok
}

// fold maps the keys that bytes.EqualFold calls equal to one string.
func fold(key []byte) string {
	out := make([]byte, 0, len(key))
	for len(key) > 0 {
		r, n := utf8.DecodeRune(key)
		key = key[n:]
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		out = utf8.AppendRune(out, least)
	}
	return string(out)
}
