// Command lineprogram is a program of the line protocol of the stdio adapter that
// plays the scripts of the conformance suite.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// object is any JSON object.
type object = map[string]any

// program is the other side of the line protocol.
type program struct {
	requests chan object
	number   int
	run      string
	saved    memory
	files    []any
	decision object
	// waiting are answers that came before they were asked for.
	waiting map[string]object
}

// memory is the program's state.
type memory struct {
	Said []string          `json:"said"`
	Rest []json.RawMessage `json:"rest"`
}

func main() {
	p := &program{requests: make(chan object), waiting: map[string]object{}}
	go p.listen()
	p.say(object{"type": "ready", "protocol": 1})
	<-p.requests
	turn := <-p.requests
	p.run = text(turn, "run_id")
	if state, err := base64.StdEncoding.DecodeString(text(turn, "state")); err == nil && len(state) > 0 {
		_ = json.Unmarshal(state, &p.saved) // its own
	}
	p.files, _ = turn["files"].([]any)
	steps := p.saved.Rest
	if text(turn, "type") == "turn" {
		steps = nil
		_ = json.Unmarshal([]byte(text(turn, "message")), &steps) // a suite that is wrong fails anyway
	} else {
		p.decision, _ = turn["decision"].(object)
		asked, _ := turn["interrupt"].(object)
		p.decided(asked)
	}
	p.saved.Rest = nil
	if !p.play(steps, nil, true) {
		p.say(object{"type": "commit", "state": p.state(nil), "stop_reason": "stop"})
	}
}

// listen reads until the end of the input; a cancel ends the program.
func (p *program) listen() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r object
		if json.Unmarshal(line, &r) != nil || r["type"] == "cancel" {
			os.Exit(0)
		}
		p.requests <- r
	}
}

func text(o object, key string) string {
	s, _ := o[key].(string)
	return s
}

func (*program) say(m object) {
	line, _ := json.Marshal(m)                 // it is made of JSON
	_, _ = os.Stdout.Write(append(line, '\n')) // whoever reads has gone
}

func (p *program) state(rest []json.RawMessage) string {
	p.saved.Rest = rest
	raw, _ := json.Marshal(p.saved) // it is made of JSON
	return base64.StdEncoding.EncodeToString(raw)
}

func (p *program) emit(namespace []string, kind string, data object) {
	p.say(object{"type": "event", "event": object{"type": kind, "namespace": namespace, "data": data}})
}

func (p *program) id(kind string) string {
	p.number++
	return fmt.Sprintf("%s-%s-%d", kind, p.run, p.number)
}

// speak says a text word by word.
func (p *program) speak(kind string, namespace []string, words string) {
	id := p.id(kind)
	started := object{"message_id": id}
	if kind == "text" {
		started["role"] = "assistant"
		p.saved.Said = append(p.saved.Said, words)
	}
	p.emit(namespace, kind+".started", started)
	for _, word := range strings.SplitAfter(words, " ") {
		p.emit(namespace, kind+".delta", object{"message_id": id, "delta": word})
	}
	p.emit(namespace, kind+".finished", object{"message_id": id})
}

// answer waits for the answer to one of several questions.
func (p *program) answer(id string) object {
	for p.waiting[id] == nil {
		r := <-p.requests
		key := text(r, "tool_call_id")
		if key == "" {
			key = text(r, "id")
		}
		p.waiting[key] = r
	}
	return p.waiting[id]
}

func (p *program) call(namespace []string, call object) string {
	id := p.id("call")
	p.say(object{"type": "tool_call", "tool_call_id": id, "tool_id": call["tool"], "arguments": call["args"], "namespace": namespace})
	return id
}

// play plays steps; ended says that the turn has its end.
func (p *program) play(steps []json.RawMessage, namespace []string, top bool) (ended bool) {
	for i, raw := range steps {
		var s object
		_ = json.Unmarshal(raw, &s) // a suite that is wrong fails anyway
		switch s["do"] {
		case "recall":
			p.speak("text", namespace, "I remember: "+strings.Join(p.saved.Said, "; "))
		case "text", "reasoning":
			p.speak(text(s, "do"), namespace, text(s, "text"))
		case "delay":
			ms, _ := s["ms"].(float64)
			time.Sleep(time.Duration(ms) * time.Millisecond) //nolint:forbidigo // this process is the program
		case "usage":
			p.emit(namespace, "usage.updated", object{
				"input_tokens": s["input"], "output_tokens": s["output"], "cached_input_tokens": nil, "cost": nil, "currency": nil, "final": s["final"],
			})
		case "fail":
			p.say(object{"type": "error", "code": s["code"]})
			return true
		case "call":
			p.answer(p.call(namespace, s))
		case "parallel":
			p.parallel(s)
		case "subagent":
			p.subagent(s)
		case "read":
			p.read(text(s, "path"))
		case "files":
			p.got()
		case "memory_put", "memory_get":
			p.memory(s)
		case "approve":
			p.approve(s, steps[i+1:])
			return true
		case "form":
			p.say(object{"type": "interrupt", "state": p.state(steps[i+1:]), "form": object{"prompt": s["prompt"], "fields": s["fields"]}})
			return true
		case "decision":
			p.tell()
		}
	}
	return !top && ended
}

func (p *program) parallel(s object) {
	branches, _ := s["branches"].([]any)
	var ids []string
	for _, b := range branches {
		steps, _ := b.([]any)
		call, _ := steps[0].(object)
		ids = append(ids, p.call(nil, call))
	}
	for _, id := range ids {
		p.result(p.answer(id))
	}
}

// result says what came of a call.
func (p *program) result(r object) {
	what := r["result"]
	if r["error"] != nil {
		what = r["error"]
	}
	raw, _ := json.Marshal(what) // it came as JSON
	p.speak("text", nil, "the tool returned: "+string(raw))
}

// read reads a file of the workspace, with a tool of the program's own.
func (p *program) read(path string) {
	id := p.id("own")
	p.emit(nil, "tool.started", object{"tool_call_id": id, "tool_name": "read", "arguments": object{"path": path}})
	content, err := os.ReadFile(path)
	if err != nil {
		p.emit(nil, "tool.error", object{"tool_call_id": id, "code": "not_found", "message": "There is no such file.", "retryable": false})
		return
	}
	p.emit(nil, "tool.finished", object{"tool_call_id": id, "result": string(content)})
	p.speak("text", nil, "it says: "+string(content))
}

// got says what files came with the turn.
func (p *program) got() {
	for _, f := range p.files {
		one, _ := f.(object)
		// The workspace is the working folder, wherever a test has put it.
		content, err := os.ReadFile(strings.TrimPrefix(text(one, "path"), "/workspace/"))
		p.speak("text", nil, fmt.Sprintf("file %s: sha256 %x, %v", text(one, "name"), sha256.Sum256(content), err))
	}
}

func (p *program) subagent(s object) {
	id, name := p.id("agent"), text(s, "name")
	below := []string{name}
	p.emit(nil, "tool.started", object{"tool_call_id": id, "tool_name": "agent." + name, "arguments": object{}})
	p.emit(below, "namespace.entered", object{"agent_id": name, "agent_name": name, "parent_tool_call_id": id})
	steps, _ := s["steps"].([]any)
	for _, one := range steps {
		raw, _ := json.Marshal(one) // it came as JSON
		p.play([]json.RawMessage{raw}, below, false)
	}
	p.emit(below, "namespace.exited", object{"agent_id": name, "parent_tool_call_id": id, "outcome": "success"})
	p.emit(nil, "tool.finished", object{"tool_call_id": id, "result": "done"})
}

func (p *program) memory(s object) {
	id := p.id("memory")
	ask := object{"type": s["do"], "id": id, "scope": s["scope"], "key": s["key"]}
	if s["do"] == "memory_put" {
		ask["kind"], ask["content_type"], ask["content"], ask["expected_revision"] = s["kind"], "text/plain", s["text"], s["revision"]
	}
	p.say(ask)
	raw, _ := json.Marshal(p.answer(id)) // it came as JSON
	p.speak("text", nil, "memory says: "+string(raw))
}

func (p *program) approve(s object, rest []json.RawMessage) {
	var asked []object
	calls, _ := s["calls"].([]any)
	for _, c := range calls {
		call, _ := c.(object)
		asked = append(asked, object{"tool_call_id": p.id("call"), "tool_id": call["tool"], "arguments": call["args"]})
	}
	p.say(object{"type": "interrupt", "state": p.state(rest), "approvals": asked})
}

// decided makes the calls that were allowed.
func (p *program) decided(asked object) {
	tools := map[string]any{}
	approvals, _ := asked["tool_approvals"].([]any)
	for _, a := range approvals {
		approval, _ := a.(object)
		tools[text(approval, "tool_call_id")] = approval["tool_name"]
	}
	decisions, _ := p.decision["tools"].([]any)
	for _, d := range decisions {
		one, _ := d.(object)
		if id := text(one, "tool_call_id"); one["decision"] != "reject" {
			p.say(object{"type": "tool_call", "tool_call_id": id, "tool_id": tools[id]})
			p.result(p.answer(id))
		}
	}
}

// tell says what was decided.
func (p *program) tell() {
	raw, _ := json.Marshal(p.decision) // it came as JSON
	p.speak("text", nil, "decided: "+string(raw))
}
