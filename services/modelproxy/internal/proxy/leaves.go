package proxy

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// leaf is what a text in a request is, and with that what it may be.
type leaf int

const (
	// Whatever is not listed is a name, an id, a choice. It is no address.
	_ leaf = iota
	// leafText is what people, models and tools say, and leafTool what a call
	// carries or brings back, at any depth. Either may be anything: nobody fetches
	// what is named there.
	leafText
	leafTool
	// leafURL is a data: URL, and leafBytes that or base64.
	leafURL
	leafBytes
	// leafToken is the endpoint's own and opaque: base64, or at least no address.
	leafToken
	// leafSource is a document of Anthropic: a text, or bytes, as its type says.
	leafSource
	// leafSchema is a JSON schema.
	leafSchema
)

// shape says where a request has which texts. A place is the keys that lead to it,
// with points between them; lists have none.
type shape struct {
	leaves map[string]leaf
	// same says of a place that it is like another one.
	same map[string]string
	// fold: the endpoint takes keys in camel case and with underscores. They are
	// written without either here.
	fold bool
}

func places(kind leaf, to map[string]leaf, names ...string) {
	for _, n := range names {
		to[n] = kind
	}
}

// checkLeaves refuses an address wherever one could be fetched: a sandbox without a
// network could send data out in it.
func (r *request) checkLeaves(s shape, a admission) error {
	for name, raw := range r.fields {
		if a.further[name] || name == "model" && r.to.wire != Gemini { // which is replaced
			continue
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return invalid(name + ": JSON")
		}
		if leadsOut(s, s.below("", name), v) {
			return invalid(name + ": names something elsewhere; send data in the request itself, and addresses in texts alone")
		}
	}
	return nil
}

// below is the place of what stands under a key.
func (s shape) below(place, key string) string {
	if s.fold {
		key = strings.ReplaceAll(strings.ToLower(key), "_", "")
	}
	if strings.Contains(key, ".") { // it must not look like two
		key = "?"
	}
	if place != "" {
		key = place + "." + key
	}
	if same, ok := s.same[key]; ok {
		return same
	}
	return key
}

func leadsOut(s shape, place string, v any) bool {
	kind := s.leaves[place]
	switch v := v.(type) {
	case string:
		return !kind.allows(v)
	case []any:
		switch kind {
		case leafTool:
			return false
		case leafSchema:
			return schemaLeadsOut(v, false)
		default:
			return slices.ContainsFunc(v, func(one any) bool { return leadsOut(s, place, one) })
		}
	case map[string]any:
		switch kind {
		case leafTool:
			return false
		case leafSchema:
			return schemaLeadsOut(v, false)
		default:
		}
		for key, value := range v {
			below := s.below(place, key)
			if s.leaves[below] == leafSource && v["type"] == "text" {
				if _, ok := value.(string); ok {
					continue
				}
			}
			if leadsOut(s, below, value) {
				return true
			}
		}
	}
	return false
}

// allows reports whether a text can stand in its place.
func (l leaf) allows(s string) bool {
	switch l {
	case leafText, leafTool:
		return true
	case leafURL:
		return isInline(s)
	case leafBytes, leafSource:
		return isInline(s) || isBase64(s)
	case leafToken:
		return isBase64(s) || !address(s)
	default:
		return !address(s)
	}
}
