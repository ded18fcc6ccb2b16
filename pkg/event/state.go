package event

import (
	"crypto/sha256"
	"slices"
	"strings"

	"cofferdam.dev/pkg/strictjson"
)

// ItemKind is a kind of what opens and closes in a run.
type ItemKind string

// The kinds of what opens and closes.
const (
	ItemText      ItemKind = "text"
	ItemReasoning ItemKind = "reasoning"
	ItemTool      ItemKind = "tool"
	ItemNamespace ItemKind = "namespace"
)

// rule of the contract on the kind.
func (k ItemKind) rule() int {
	if k == ItemTool {
		return 4
	}
	return 3
}

// itemKey names an item. Text and reasoning may share an id.
type itemKey struct {
	kind ItemKind
	id   string
}

// item is an open text, reasoning or tool call.
type item struct {
	key   itemKey
	order int
	path  []string // its namespace
	// anywhere marks a call that was carried over: its namespace is not known.
	anywhere bool

	// The rest is for tool calls.
	name          string // empty if carried over
	arguments     []byte // joined from deltas
	argumentsDone bool   // none may stream, or none may stream any more
	// digest is of the arguments that the call started with; see digestOf.
	digest   [sha256.Size]byte
	decision Decision
	// named: the interrupt asks for a decision on the call.
	named bool
	// suspended: the namespace that the call delegated to was exited as
	// interrupted.
	suspended bool
}

// waits reports whether the call may stay open when the run is interrupted.
func (it *item) waits() bool { return it.named || it.suspended }

// argumentsComplete reports whether the arguments are one object.
func (it *item) argumentsComplete(b *Bounds) bool {
	if len(it.arguments) == 0 {
		return true
	}
	c := checker{bounds: b}
	c.arguments("", Object(it.arguments))
	return c.err == nil
}

// asksFor reports whether the arguments that people are asked about are those that
// the call was started with. What is approved must be what was shown.
func (it *item) asksFor(args Object, b *Bounds) bool {
	have, ok := it.digest, true
	if !it.argumentsDone {
		text := it.arguments
		if len(text) == 0 {
			text = []byte(EmptyObject)
		}
		have, ok = digestOf(text, b)
	}
	want, readable := digestOf([]byte(args), b)
	return ok && readable && have == want
}

// digestOf is the same for all JSON that means the same; ok is false for what is
// none.
func digestOf(arguments []byte, b *Bounds) (sum [sha256.Size]byte, ok bool) {
	text, err := strictjson.Canonical(arguments, strictjson.Options{MaxBytes: b.ArgumentsBytes, MaxDepth: b.ArgumentsDepth})
	if err != nil {
		return sum, false
	}
	return sha256.Sum256(text), true
}

// space is an open namespace; the root has no path and is always open.
type space struct {
	path    []string
	order   int
	agentID string
	parent  string // tool call id
}

// pathKey identifies a namespace. Ids have no slash.
func pathKey(path []string) string { return strings.Join(path, "/") }

func tool(id string) itemKey { return itemKey{ItemTool, id} }

func (m *Machine) open(key itemKey, it *item) {
	m.opened++
	it.key, it.order = key, m.opened
	m.items[key] = it
}

func (m *Machine) end(key itemKey) {
	delete(m.items, key)
	m.ended[key] = struct{}{}
}

func (m *Machine) countOpen(k ItemKind) (n int) {
	for key := range m.items {
		if key.kind == k {
			n++
		}
	}
	return n
}

// delegates reports whether a namespace is open that the tool call opened.
func (m *Machine) delegates(toolCallID string) bool {
	for key, sp := range m.spaces {
		if key != "" && sp.parent == toolCallID {
			return true
		}
	}
	return false
}

// occupied says what keeps a namespace from being exited: a namespace below it,
// or an item in it that does not wait.
func (m *Machine) occupied(path []string) bool {
	for _, sp := range m.spaces {
		if len(sp.path) == len(path)+1 && slices.Equal(sp.path[:len(path)], path) {
			return true
		}
	}
	for _, it := range m.items {
		if !it.anywhere && !it.waits() && slices.Equal(it.path, path) {
			return true
		}
	}
	return false
}
