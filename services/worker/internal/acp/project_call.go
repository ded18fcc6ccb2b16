package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
)

// follow gives the events that are due for a call. must is a call that has to be
// started now, whatever is known of it.
func (p *projector) follow(c *call, must bool) []event.Draft {
	over := rank(c.status) == rank(statusDone)
	// Of the arguments of a call that is not being made yet more may come. They
	// stand in its events once they are whole.
	whole := must || rank(c.status) >= rank(statusRuns)
	if c.ended || c.muted {
		return nil
	}
	if c.id == "" {
		if c.tool == nil {
			c.tool = p.tools.find(c)
		}
		if c.tool != nil && !must {
			return p.suppressed(c, over)
		}
		// Agents tell of a call piece by piece. It is started once there is something
		// to show, or nothing more to wait for; one that may have been approved before,
		// once it is clear whether it was.
		known := len(c.input) > 0 && !emptyInput(c.input) && c.reports > 1
		ready := c.named() && (known || rank(c.status) >= rank(statusRuns)) && !c.waits && !p.expected(c.ownName())
		if !ready && !over && !must {
			return nil
		}
		out := p.start(c, whole)
		if c.tool == nil {
			out = append(out, p.finished(c, over)...)
		}
		return out
	}
	switch {
	case c.tool != nil:
		return nil // the broker's answer ends it
	case !whole:
		return nil
	default:
		return append(p.arguments(c), p.finished(c, over)...)
	}
}

// suppressed is a call of an offered tool: its events come from the broker's
// answer. One that the agent reports as ended and that never came to the worker
// is told as what it was: something that the agent did by itself.
func (p *projector) suppressed(c *call, over bool) []event.Draft {
	if !over {
		return nil
	}
	id := c.tool.ID
	if p.reported[id]++; p.reported[id] <= p.brokered[id] {
		c.ended = true
		return nil
	}
	p.reported[id]--
	c.name, c.tool = c.tool.OfferedName, nil
	return append(p.start(c, true), p.finished(c, true)...)
}

// start opens a call, unless it is one that a person has approved before: that
// counts as started. Arguments that are not whole follow.
func (p *projector) start(c *call, whole bool) []event.Draft {
	c.toolID = c.ownName()
	if c.tool != nil {
		c.toolID = c.tool.ID
	}
	args, _ := c.shown()
	if g := p.approval(c); g != nil {
		g.used, c.id, c.granted, c.carried, c.told = true, g.callID, true, true, g.arguments
		return p.closeTexts()
	}
	if p.openOwn() >= maxOpenOwn {
		c.muted = true
		return p.warn("tool_calls_not_shown", "The agent has more tool calls open than can be shown. Some are left out.")
	}
	p.numbered++
	c.id = fmt.Sprintf("call-%s-a%d", p.tag, p.numbered)
	if !whole {
		args = event.EmptyObject
	}
	c.told = args
	return append(p.closeTexts(), event.Draft{Data: event.ToolStarted{ToolCallID: c.id, ToolName: c.toolID, Arguments: args}})
}

// approval is the grant of an own tool's call, or nil.
func (p *projector) approval(c *call) *grant {
	if c.tool != nil {
		return nil
	}
	args, _ := c.shown()
	if g := p.grantFor(c.ownName(), args); g != nil || len(c.question) == 0 {
		return g
	}
	args, _ = objectOf(c.question)
	return p.grantFor(c.ownName(), args)
}

// present brings a call to where a person can decide on it. One whose events have
// other arguments than the question, and one that was decided on before, ends
// there: the question is about another call.
func (p *projector) present(c *call) []event.Draft {
	c.waits = false
	args, _ := c.shown()
	var out []event.Draft
	if c.id != "" && (c.carried || c.told != event.EmptyObject && !partOf(json.RawMessage(args), json.RawMessage(c.told))) {
		out = append(out, toolError(c.id, fault.Cancelled))
		for _, g := range p.grants {
			g.used = g.used || g.callID == c.id
		}
		c.id, c.carried = "", false
	}
	return append(out, p.follow(c, true)...)
}

func (p *projector) openOwn() (n int) {
	for _, c := range p.order {
		if c.id != "" && !c.ended {
			n++
		}
	}
	return n
}

// arguments that became known after the start follow once.
func (p *projector) arguments(c *call) []event.Draft {
	args, ok := c.shown()
	if c.told != event.EmptyObject || !ok || args == event.EmptyObject {
		return nil
	}
	c.told = args
	var out []event.Draft
	for rest := string(args); rest != ""; {
		piece := event.Truncate(rest, event.MaxDeltaBytes)
		out = append(out, event.Draft{Data: event.ToolArgumentsDelta{ToolCallID: c.id, Delta: piece}})
		rest = rest[len(piece):]
	}
	return out
}

// finished ends a call that is over. Of one that failed the agent's words are not
// repeated: they may be anything that a program wrote.
func (p *projector) finished(c *call, over bool) []event.Draft {
	if !over || c.ended || c.id == "" {
		return nil
	}
	c.ended = true
	if c.status == statusFailed {
		return []event.Draft{{Data: event.ToolError{
			ToolCallID: c.id, Code: "tool_failed", Message: "The agent's own tool has failed, or could not be run.",
		}}}
	}
	return []event.Draft{{Data: event.ToolFinished{ToolCallID: c.id, Result: c.result()}}}
}

func (c *call) result() event.Value {
	if c.output == "" && len(c.outputJSON) > 0 {
		v, _ := event.ProjectJSON(c.outputJSON, event.MaxResultBytes)
		return v
	}
	v, _ := event.ProjectText(c.output, event.MaxResultBytes)
	return v
}

// shown are the arguments as an event can have them, and whether they are all
// there is. Where an agent tells none, its title is what is known.
func (c *call) shown() (event.Object, bool) {
	input := c.input
	if c.tool != nil {
		input = c.arguments()
	}
	if len(input) > 0 && !emptyInput(input) {
		return objectOf(input)
	}
	if c.tool != nil || c.title == "" || c.title == c.name {
		return event.EmptyObject, false
	}
	title, err := json.Marshal(map[string]string{"title": c.title})
	if err != nil { // a string always marshals
		return event.EmptyObject, false
	}
	return event.Object(title), true
}

// objectOf gives arguments as one compact JSON object that an event can have and
// that a person can decide on, or false.
func objectOf(raw json.RawMessage) (event.Object, bool) {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil || !strings.HasPrefix(compact.String(), "{") {
		return event.EmptyObject, false
	}
	o := strictjson.Options{MaxBytes: maxShownArguments, MaxDepth: event.MaxArgumentsDepth}
	if strictjson.Check(compact.Bytes(), o) != nil {
		return event.EmptyObject, false
	}
	return event.Object(compact.String()), true
}

// sameJSON compares two JSON texts by what they say: the order of keys and space
// count for nothing, digits for everything.
func sameJSON(a, b string) bool {
	va, oka := exact(a)
	vb, okb := exact(b)
	return oka && okb && reflect.DeepEqual(va, vb)
}

// partOf tells whether an object has nothing that is not in the other one.
func partOf(part, whole json.RawMessage) bool {
	some, oka := objectOf(part)
	all, okb := objectOf(whole)
	a, _ := exact(string(some))
	b, _ := exact(string(all))
	few, _ := a.(map[string]any)
	many, _ := b.(map[string]any)
	for name, value := range few {
		if other, ok := many[name]; !ok || !reflect.DeepEqual(value, other) {
			return false
		}
	}
	return oka && okb
}

func exact(s string) (v any, ok bool) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, false
	}
	_, err := d.Token()
	return v, err == io.EOF
}
