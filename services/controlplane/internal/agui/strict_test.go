package agui_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// What follows reads a stream of AG-UI events from its bytes alone, more strictly
// than the client does. The encoder is tested against it.

type object = map[string]any

// shapes are the fields that an event may have; those with a * it must have.
// Types: s string, i integer of at least 0, o object, a list, v any value.
var shapes = map[string]string{
	"RUN_STARTED":               "*threadId:s *runId:s *protocolVersion:s",
	"RUN_FINISHED":              "*threadId:s *runId:s *outcome:o usage:a",
	"RUN_ERROR":                 "*message:s *code:s usage:a",
	"TEXT_MESSAGE_START":        "*messageId:s *role:s subagentRunId:s",
	"TEXT_MESSAGE_CONTENT":      "*messageId:s *delta:s subagentRunId:s",
	"TEXT_MESSAGE_END":          "*messageId:s subagentRunId:s",
	"REASONING_START":           "*messageId:s subagentRunId:s",
	"REASONING_MESSAGE_START":   "*messageId:s *role:s subagentRunId:s",
	"REASONING_MESSAGE_CONTENT": "*messageId:s *delta:s subagentRunId:s",
	"REASONING_MESSAGE_END":     "*messageId:s subagentRunId:s",
	"REASONING_END":             "*messageId:s subagentRunId:s",
	"TOOL_CALL_START":           "*toolCallId:s *toolCallName:s parentMessageId:s subagentRunId:s",
	"TOOL_CALL_ARGS":            "*toolCallId:s *delta:s subagentRunId:s",
	"TOOL_CALL_END":             "*toolCallId:s subagentRunId:s",
	"TOOL_CALL_RESULT":          "*messageId:s *toolCallId:s *content:s *role:s subagentRunId:s",
	"SUBAGENT_STARTED":          "*subagentRunId:s *name:s parentSubagentRunId:s *parentToolCallId:s",
	"SUBAGENT_FINISHED":         "*subagentRunId:s *outcome:o",
	"SUBAGENT_ERROR":            "*subagentRunId:s *message:s code:s",
	"STATE_SNAPSHOT":            "*snapshot:v",
	"MESSAGES_SNAPSHOT":         "*messages:a",
	"CUSTOM":                    "*name:s *value:v subagentRunId:s",
}

// thing is what opens and closes, and whose it is.
type thing struct {
	open  bool
	owner string
	args  string
	// answered tool calls have their result.
	answered bool
}

type reader struct {
	threadID, runID string
	// joined: the stream goes on with a run that the reader has the beginning of.
	joined bool
	// echo is how many messages of the client a snapshot begins with.
	echo int
	// waiting are the calls of an earlier run that wait for their result.
	waiting []string

	started, over bool
	things        map[string]*thing // kind and id
	ids           map[string]string // id of a message -> who made it
	messages      []object          // as a client builds them
	last          string            // type of the last event
	snapshots     []string
}

// read checks a whole stream.
func (r *reader) read(frames [][]byte) error {
	r.things, r.ids = make(map[string]*thing), make(map[string]string)
	for _, id := range r.waiting {
		r.things["call"+id] = &thing{}
	}
	for i, f := range frames {
		if err := r.frame(f); err != nil {
			return fmt.Errorf("frame %d: %w: %s", i, err, f)
		}
	}
	if !r.over {
		return errors.New("the stream has no terminal")
	}
	return nil
}

func (r *reader) frame(text []byte) error {
	if bytes.ContainsAny(text, "\r\n") {
		return errors.New("more than one line")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var e object
	if err := d.Decode(&e); err != nil {
		return err
	}
	kind, _ := e["type"].(string)
	if err := shape(kind, e); err != nil {
		return err
	}
	switch {
	case r.over:
		return errors.New("an event after the terminal")
	case r.started == (kind == "RUN_STARTED"):
		return errors.New("RUN_STARTED is not the first event, or not the only one")
	}
	r.started, r.last = true, kind
	return r.event(kind, e)
}

func shape(kind string, e object) error {
	want, known := shapes[kind]
	if !known {
		return fmt.Errorf("unknown type %q", kind)
	}
	want += " *type:s *timestamp:i metadata:o"
	for f := range strings.FieldsSeq(want) {
		name, is, _ := strings.Cut(strings.TrimPrefix(f, "*"), ":")
		v, there := e[name]
		if !there && f[0] != '*' {
			continue
		}
		if !fits(v, is) {
			return fmt.Errorf("%s is %T", name, v)
		}
	}
	for name := range e {
		if !strings.Contains(" "+strings.ReplaceAll(want, "*", ""), " "+name+":") {
			return fmt.Errorf("%s may not have %s", kind, name)
		}
	}
	return nil
}

func fits(v any, is string) (ok bool) {
	switch is {
	case "s":
		_, ok = v.(string)
	case "o":
		_, ok = v.(object)
	case "a":
		_, ok = v.([]any)
	case "i":
		n, isNumber := v.(json.Number)
		i, err := n.Int64()
		return isNumber && err == nil && i >= 0 && i < 1<<53
	default:
		return v != nil
	}
	return ok
}

func str(e object, name string) string {
	s, _ := e[name].(string)
	return s
}

// open opens something; an id opens once.
func (r *reader) open(kind, id string, e object) error {
	by := str(e, "subagentRunId")
	if r.things[kind+id] != nil || id == "" {
		return fmt.Errorf("%s %q opens a second time", kind, id)
	}
	if by != "" && (r.things["agent"+by] == nil || !r.things["agent"+by].open) && kind != "agent" {
		return errors.New("an event of a subagent that is not active")
	}
	r.things[kind+id] = &thing{open: true, owner: by}
	return nil
}

func (r *reader) goesOn(kind, id string, e object, end bool) error {
	it := r.things[kind+id]
	if it == nil || !it.open {
		return fmt.Errorf("%s %q is not open", kind, id)
	}
	if it.owner != str(e, "subagentRunId") {
		return errors.New("another owner than the one that opened it")
	}
	it.open = !end
	return nil
}

// mint makes a message; the ids of all messages are one set.
func (r *reader) mint(id, by string, m object) error {
	if r.ids[id] != "" {
		return fmt.Errorf("two messages have the id %q", id)
	}
	r.ids[id] = by
	m["id"] = id
	r.messages = append(r.messages, m)
	return nil
}

func (r *reader) message(id string) object {
	for _, m := range r.messages {
		if m["id"] == id {
			return m
		}
	}
	return nil
}

func tagged(m, e object) object {
	if by := str(e, "subagentRunId"); by != "" {
		m["subagentRunId"] = by
	}
	if md, ok := e["metadata"]; ok {
		m["metadata"] = md
	}
	return m
}

func (r *reader) event(kind string, e object) error {
	id := str(e, "messageId")
	switch kind {
	case "RUN_STARTED":
		if str(e, "protocolVersion") != "1.0" {
			return errors.New("another version")
		}
		return r.identity(e)
	case "TEXT_MESSAGE_START":
		if str(e, "role") != "assistant" {
			return errors.New("another role")
		}
		return errors.Join(r.open("text", id, e), r.mint(id, kind, tagged(object{"role": "assistant", "content": ""}, e)))
	case "REASONING_MESSAGE_START":
		if str(e, "role") != "reasoning" {
			return errors.New("another role")
		}
		return errors.Join(r.open("thought", id, e), r.mint(id, kind, tagged(object{"role": "reasoning", "content": ""}, e)))
	case "TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT":
		if str(e, "delta") == "" {
			return errors.New("an empty delta")
		}
		m := r.message(id)
		m["content"] = m["content"].(string) + str(e, "delta") //nolint:forcetypeassert // made above
		return r.goesOn(map[bool]string{true: "text", false: "thought"}[kind == "TEXT_MESSAGE_CONTENT"], id, e, false)
	case "TEXT_MESSAGE_END":
		return r.goesOn("text", id, e, true)
	case "REASONING_MESSAGE_END":
		return r.goesOn("thought", id, e, true)
	case "REASONING_START":
		return r.open("span", id, e)
	case "REASONING_END":
		return r.goesOn("span", id, e, true)
	case "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR":
		return r.subagent(kind, e)
	case "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT":
		r.snapshots = append(r.snapshots, kind)
		if messages, ok := e["messages"]; ok {
			return r.restated(messages)
		}
		return nil
	case "CUSTOM":
		if e["name"] != "WARNING" {
			return errors.New("an unknown custom event")
		}
		return nil
	case "RUN_FINISHED", "RUN_ERROR":
		return r.terminal(kind, e)
	default:
		return r.call(kind, e)
	}
}

func (r *reader) identity(e object) error {
	if str(e, "threadId") != r.threadID || str(e, "runId") != r.runID {
		return errors.New("the ids of another run")
	}
	return nil
}

func (r *reader) call(kind string, e object) error {
	id := str(e, "toolCallId")
	it := r.things["call"+id]
	switch kind {
	case "TOOL_CALL_START":
		call := object{"id": id, "type": "function", "function": object{"name": e["toolCallName"], "arguments": ""}, "metadata": e["metadata"]}
		parent := str(e, "parentMessageId")
		if parent == "" {
			m := tagged(object{"role": "assistant"}, e)
			delete(m, "metadata")
			if err := r.mint(id, kind, m); err != nil {
				return err
			}
			parent = id
		}
		m := r.message(parent)
		if m == nil && !r.joined {
			return errors.New("the message that carries the call is not there")
		}
		if m != nil {
			calls, _ := m["toolCalls"].([]any)
			m["toolCalls"] = append(calls, call)
		}
		if owner := r.things["text"+parent]; owner != nil && owner.owner != str(e, "subagentRunId") {
			return errors.New("the call belongs to another agent than its message")
		}
		return r.open("call", id, e)
	case "TOOL_CALL_ARGS":
		if err := r.goesOn("call", id, e, false); err != nil {
			return err
		}
		it.args += str(e, "delta")
		return nil
	case "TOOL_CALL_END":
		if err := r.goesOn("call", id, e, true); err != nil {
			return err
		}
		var args object
		if err := json.Unmarshal([]byte(it.args), &args); (err != nil || args == nil) && !r.joined {
			return fmt.Errorf("the arguments %q are no object", it.args)
		}
		return nil
	default:
		if it == nil || it.open || it.answered || str(e, "role") != "tool" || str(e, "subagentRunId") != it.owner {
			return errors.New("a result that its call does not wait for")
		}
		it.answered = true
		return r.answer(id, it, e)
	}
}

// answer places a result behind the message of its call and the results there.
func (r *reader) answer(id string, it *thing, e object) error {
	m := tagged(object{"role": "tool", "toolCallId": id, "content": e["content"]}, e)
	if err := r.mint(str(e, "messageId"), "TOOL_CALL_RESULT", m); err != nil {
		return err
	}
	if slices.Contains(r.waiting, id) { // its message is of an earlier run
		return nil
	}
	r.messages = r.messages[:len(r.messages)-1]
	at := slices.IndexFunc(r.messages, func(m object) bool {
		calls, _ := m["toolCalls"].([]any)
		return slices.ContainsFunc(calls, func(c any) bool {
			call, _ := c.(object)
			if call["id"] == id {
				call["function"].(object)["arguments"] = it.args //nolint:forcetypeassert // made above
			}
			return call["id"] == id
		})
	}) + 1
	for at < len(r.messages) && r.messages[at]["role"] == "tool" {
		at++
	}
	r.messages = slices.Insert(r.messages, at, m)
	return nil
}

func (r *reader) subagent(kind string, e object) error {
	id, above := str(e, "subagentRunId"), str(e, "parentSubagentRunId")
	if kind != "SUBAGENT_STARTED" {
		for key, it := range r.things {
			if it.open && it.owner == id && key != "agent"+id && !strings.HasPrefix(key, "call") {
				return errors.New("a subagent ends before what it opened")
			}
		}
		return r.goesOn("agent", id, e, true)
	}
	call := r.things["call"+str(e, "parentToolCallId")]
	if call == nil || !call.open || call.owner != above {
		return errors.New("no open call delegates")
	}
	if above != "" && (r.things["agent"+above] == nil || !r.things["agent"+above].open) {
		return errors.New("the subagent above is not active")
	}
	return r.open("agent", id, e)
}

// restated compares a snapshot with what the stream said before.
func (r *reader) restated(messages any) error {
	for _, it := range r.messages { // arguments of the calls that wait
		calls, _ := it["toolCalls"].([]any)
		for _, c := range calls {
			call, _ := c.(object)
			id, _ := call["id"].(string)
			call["function"].(object)["arguments"] = r.things["call"+id].args //nolint:forcetypeassert // made above
		}
	}
	said := make([]any, len(r.messages))
	for i, m := range r.messages {
		said[i] = m
	}
	got, _ := messages.([]any)
	if len(got) < r.echo {
		return errors.New("the snapshot lacks what the client sent")
	}
	if got = got[r.echo:]; !reflect.DeepEqual(got, said) && (len(got) > 0 || len(said) > 0) {
		return fmt.Errorf("the snapshot differs from what was said: %v", said)
	}
	return nil
}

func (r *reader) terminal(kind string, e object) error {
	r.over = true
	waits := false
	for key, it := range r.things {
		isCall := strings.HasPrefix(key, "call")
		if it.open {
			return fmt.Errorf("%s is open at the end", key)
		}
		waits = waits || isCall && !it.answered
	}
	if kind == "RUN_ERROR" {
		if waits {
			return errors.New("a call has no result")
		}
		return nil
	}
	o, _ := e["outcome"].(object)
	asks := str(o, "type") == "interrupt"
	switch {
	case r.identity(e) != nil:
		return r.identity(e)
	case waits && !asks:
		return errors.New("a call has no result")
	case !slices.Contains([]string{"success", "interrupt", "cancelled"}, str(o, "type")):
		return errors.New("an unknown outcome")
	case asks && !slices.Equal(r.snapshots, []string{"STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"}), !asks && len(r.snapshots) > 0:
		return fmt.Errorf("snapshots %v", r.snapshots)
	}
	for _, u := range anys(e["usage"]) {
		for name, n := range u {
			if !fits(n, "i") {
				return fmt.Errorf("%s is no count", name)
			}
		}
	}
	seen := make(map[string]bool)
	for _, i := range anys(o["interrupts"]) {
		if seen[str(i, "id")] || str(i, "id") == "" || str(i, "reason") == "" {
			return errors.New("an interrupt without an id of its own or a reason")
		}
		seen[str(i, "id")] = true
	}
	if asks != (len(seen) > 0) {
		return errors.New("interrupts and the outcome do not agree")
	}
	return nil
}

func anys(list any) (out []object) {
	items, _ := list.([]any)
	for _, it := range items {
		o, _ := it.(object)
		out = append(out, o)
	}
	return out
}
