package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"cofferdam.dev/services/worker/internal/conformance/internal/rpc/brokers"
	"cofferdam.dev/services/worker/internal/harness"
)

// Intent is what a fixture wants the harness to do in one turn, in the order of
// its fields. What is zero is left out.
type Intent struct {
	Think string
	Say   string
	// SleepMS after what was said.
	SleepMS int
	// Usage is what the model reports: tokens in and out.
	Usage [2]uint64
	// FailStatus is the HTTP status that the model answers with.
	FailStatus int
	// Cut breaks the model's stream off here.
	Cut bool
	// Calls of tools, at once. For those of NeedsApproval a person is asked first.
	Calls []Call
	// Delegate lets a subagent make a call.
	Delegate *Call
	// Put and Get records of memory.
	Put, Get []Record
	// Read a file of the workspace, with a tool of the harness's own.
	Read string
	// Files says what the harness got of the files that came with the turn.
	Files []string
	// Form asks a person for one field, a required text named region.
	Form bool
	// Then is said after all that, and after what came of it.
	Then string
	// Recall says what the harness remembers of the conversation.
	Recall bool
}

// Call of a tool.
type Call struct{ Tool, Args string }

// Record of memory.
type Record struct {
	// Scope is that of the user where it is empty, and Kind semantic.
	Scope           harness.MemoryScope
	Key, Kind, Text string
	// Revision that stands before a put.
	Revision uint64
}

// In is the scope.
func (r Record) In() harness.MemoryScope { return cmp.Or(r.Scope, harness.MemoryUser) }

// Of is the kind.
func (r Record) Of() string { return cmp.Or(r.Kind, "semantic") }

// NeedsApproval reports whether a call of the tool needs one.
func NeedsApproval(tool string) bool { return tool == brokers.Write }

// DemoLines is the intent as lines that the demo model obeys, for harnesses that
// pass the user's message on to it. memory and form name what the model calls for
// those, with their arguments; "" where the harness has none.
func DemoLines(i Intent, d Dialect) string {
	if i.Recall {
		return "What do you remember of this conversation?"
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, ">>"+format+"\n", args...) }
	if i.Think != "" {
		line("think %s", i.Think)
	}
	if i.Say != "" {
		line("say %s", i.Say)
	}
	if i.SleepMS > 0 {
		line("sleep %d", i.SleepMS)
	}
	if i.Usage != [2]uint64{} {
		line("usage %d %d", i.Usage[0], i.Usage[1])
	}
	if i.FailStatus > 0 {
		line("error %d", i.FailStatus)
	}
	if i.Cut {
		line("reset")
	}
	for _, c := range i.Calls {
		line("call %s %s", c.Tool, c.Args)
	}
	for _, r := range i.Put {
		line("call %s", d.Put(r))
	}
	for _, r := range i.Get {
		line("call %s", d.Get(r))
	}
	if i.Read != "" {
		line("call %s", d.Read(i.Read))
	}
	for _, name := range i.Files {
		if call := d.File(name); call != "" {
			line("call %s", call)
		}
	}
	if i.Delegate != nil {
		line("call %s", d.Delegate(*i.Delegate))
	}
	if i.Form {
		line("call %s", d.Form)
	}
	if i.Then != "" {
		line("say %s", i.Then)
	}
	return b.String()
}

// Dialect has the calls by which a model uses what a harness has itself: the
// tool's name and its arguments.
type Dialect struct {
	Put, Get func(Record) string
	// Read and File read a file of the workspace, and one that came with the turn;
	// "" is for what the model is shown itself.
	Read, File func(name string) string
	Delegate   func(Call) string
	Form       string
}

// Script is the intent as a script of the scripted adapter.
func Script(i Intent) string {
	var steps []map[string]any
	add := func(do string, more ...any) {
		step := map[string]any{"do": do}
		for n := 0; n+1 < len(more); n += 2 {
			if key, ok := more[n].(string); ok {
				step[key] = more[n+1]
			}
		}
		steps = append(steps, step)
	}
	if i.Recall {
		add("recall")
	}
	if i.Think != "" {
		add("reasoning", "text", i.Think)
	}
	if i.Say != "" {
		add("text", "text", i.Say)
	}
	if i.SleepMS > 0 {
		add("delay", "ms", i.SleepMS)
	}
	if i.Usage != [2]uint64{} {
		add("usage", "input", i.Usage[0], "output", i.Usage[1], "final", true)
	}
	if i.FailStatus > 0 || i.Cut {
		add("fail", "code", "model_failed")
	}
	scriptCalls(i.Calls, add)
	for _, r := range i.Put {
		add("memory_put", "scope", r.In(), "key", r.Key, "kind", r.Of(), "text", r.Text, "revision", r.Revision)
	}
	for _, r := range i.Get {
		add("memory_get", "scope", r.In(), "key", r.Key)
	}
	if i.Read != "" {
		add("read", "path", i.Read)
	}
	if len(i.Files) > 0 {
		add("files")
	}
	if c := i.Delegate; c != nil {
		add("subagent", "name", "helper", "steps", []any{map[string]any{"do": "call", "tool": c.Tool, "args": json.RawMessage(c.Args)}})
	}
	if i.Form {
		add("form", "prompt", "Which?", "fields", []any{map[string]any{"field_name": "region", "field_type": "text", "required": true}})
		add("decision")
	}
	if i.Then != "" {
		add("text", "text", i.Then)
	}
	text, err := json.Marshal(steps)
	if err != nil {
		return err.Error() // no script, which the adapter will say
	}
	return string(text)
}

// scriptCalls makes calls at once, and asks for those that need it.
func scriptCalls(calls []Call, add func(string, ...any)) {
	var branches, asked []any
	for _, c := range calls {
		if NeedsApproval(c.Tool) {
			asked = append(asked, map[string]any{"tool": c.Tool, "args": json.RawMessage(c.Args)})
			continue
		}
		branches = append(branches, []any{map[string]any{"do": "call", "tool": c.Tool, "args": json.RawMessage(c.Args), "say": true}})
	}
	if len(branches) > 0 {
		add("parallel", "branches", branches)
	}
	if len(asked) > 0 {
		add("approve", "calls", asked)
		add("decision")
	}
}
