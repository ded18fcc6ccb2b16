package proxy

import (
	"encoding/json"
	"slices"
	"strings"
)

// opaque tells what a key of an object holds that is data of a tool: a call's
// arguments, and what it returned. Nobody fetches what is named there.
type opaque func(o map[string]any, key string) bool

// elsewhere reports whether content names something that the endpoint would
// fetch or has stored, at any depth: a sandbox without a network could send data
// out in the address, and what is stored under the key may be another's. Keys
// are compared without case and underscores, because endpoints differ in what
// they take.
func elsewhere(raw json.RawMessage, skip opaque) bool {
	var v any
	return json.Unmarshal(raw, &v) != nil || names(v, skip)
}

func names(v any, skip opaque) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return names(one, skip) })
	case map[string]any:
		for key, value := range v {
			if skip(v, key) {
				continue
			}
			if isAddress(key) && !isData(value) || isVariant(key) || names(value, skip) {
				return true
			}
		}
	}
	return false
}

// isAddress reports whether a key is one that addresses stand under.
func isAddress(key string) bool {
	key = strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(key))
	return strings.HasSuffix(key, "url") || strings.HasSuffix(key, "uri") ||
		strings.HasSuffix(key, "fileid") || strings.HasSuffix(key, "fileids") || key == "containerid"
}

// isVariant reports whether a reader that does not mind case would take a key for
// the one that says what an object is.
func isVariant(key string) bool { return key != "type" && strings.EqualFold(key, "type") }

// isData reports whether what stands under such a key is no address: nothing, the
// data itself, or an object, which is looked into.
func isData(value any) bool {
	switch v := value.(type) {
	case nil, map[string]any:
		return true
	case string:
		return isInline(v)
	default:
		return false
	}
}

// blocksOf lists the objects of a list; ok is false where there is another thing
// than an object in it.
func blocksOf(raw json.RawMessage) (blocks []object, ok bool) {
	ok = json.Unmarshal(raw, &blocks) == nil && !slices.ContainsFunc(blocks, func(o object) bool { return o == nil })
	return blocks, ok
}

// isList reports whether raw is a list; a text has nothing in it to look at.
func isList(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '[' }
