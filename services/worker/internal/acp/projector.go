package acp

import (
	"encoding/json"
	"fmt"
	"slices"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

const (
	// maxCalls is how many calls an agent may report in one run.
	maxCalls = 4096
	// maxOpenOwn of them are shown as open at once: the rest of what a run may have
	// open is kept for the calls that are made through the worker.
	maxOpenOwn = 32
	// maxRunText bounds the text and the reasoning of a run, in bytes. An agent that
	// repeats itself at each retry must not use up the run's events.
	maxRunText = 8 << 20
	// maxShownArguments is up to what size arguments of an agent's own tool are
	// shown, in bytes.
	maxShownArguments = event.MaxEventBytes - 16<<10
)

// projector makes events of what an agent tells in a turn. It is a state machine
// without clock, lock or output: each method gives the drafts that follow.
type projector struct {
	tag   string
	tools catalogue
	drop  []string

	// messageID and thoughtID are empty while nothing of the kind is open; message is
	// the agent's id of the open one.
	messageID, thoughtID, message string
	texts, thoughts, numbered     int
	questions                     int
	textBytes                     int
	warned                        map[string]bool

	calls map[string]*call
	order []*call
	// old are calls of another turn, of which an agent may still speak.
	old map[string]bool
	// grants are calls that a person has approved, and that are still to come.
	grants []*grant
	// brokered and reported count, by tool id, the calls that came to the worker and
	// those that the agent says have ended.
	brokered, reported map[string]int
	// underway are the calls that came to the worker and have not ended.
	underway []string
}

// call is a tool call as the agent has told of it so far.
type call struct {
	key                        string
	title, first, kind, status string
	name                       string
	input                      json.RawMessage
	// question has the arguments that the agent asks about, which may be some of
	// input.
	question json.RawMessage
	// place of the question among those of the turn, from 1.
	place      int
	output     string
	outputJSON json.RawMessage
	reports    int

	// id of its events; "" before it was started.
	id string
	// tool is the offered tool that it is a call of; nil for one of the agent's own.
	tool *offeredTool
	// toolID stands once it was started.
	toolID string
	// told are the arguments that its events have; what a person decides on is never
	// anything else.
	told  event.Object
	ended bool
	// muted calls are not shown.
	muted bool
	// granted was approved by a person before it was made, and carried counts as
	// started since an earlier run: it can be asked about only once.
	granted, carried bool
	// waits for a person; it is started once they are asked.
	waits bool
}

func newProjector(tag string, tools catalogue, drop []string) *projector {
	return &projector{
		tag: tag, tools: tools, drop: drop, warned: map[string]bool{}, calls: map[string]*call{}, old: map[string]bool{},
		brokered: map[string]int{}, reported: map[string]int{},
	}
}

// again goes on in the run that resumes a turn: the calls stay known, and ids
// are those of the new run.
func (p *projector) again(tag string) {
	p.tag, p.messageID, p.thoughtID, p.message = tag, "", "", ""
	p.textBytes, p.warned = 0, map[string]bool{}
	for _, c := range p.order {
		c.carried = c.id != ""
	}
}

// outside takes an update that belongs to no turn: of it only the call is
// remembered, so that what still comes of it is told from this turn's.
func (p *projector) outside(u update) {
	if u.kind == updateCall && p.calls[u.report.key] == nil && len(p.old) < maxCalls {
		p.old[u.report.key] = true
	}
}

// update takes an update of the turn. Errors: protocol for more calls than a run
// may have.
func (p *projector) update(u update) ([]event.Draft, error) {
	switch u.kind {
	case updateText:
		return p.text(u), nil
	case updateThought:
		return p.thought(u.text), nil
	case updateCall:
		c, err := p.take(u.report)
		if c == nil {
			return nil, err
		}
		return p.follow(c, false), nil
	case updateOther:
	}
	return nil, nil
}

// take adds a report to its call. nil is a call of another turn.
func (p *projector) take(r report) (*call, error) {
	c := p.calls[r.key]
	if c == nil {
		if p.old[r.key] && !r.opens {
			return nil, nil
		}
		if len(p.order) >= maxCalls {
			return nil, fault.Wrap(fmt.Errorf("the agent reports more than %d tool calls", maxCalls), fault.Protocol, "acp.take")
		}
		c = &call{key: r.key}
		p.calls[r.key] = c
		p.order = append(p.order, c)
	}
	c.merge(r)
	if r.asks && c.place == 0 {
		p.questions++
		c.place = p.questions
	}
	return c, nil
}

// merge takes what a report tells. A status only moves forward.
func (c *call) merge(r report) {
	if c.ended {
		return
	}
	if c.first == "" {
		c.first = r.title
	}
	for _, f := range []struct {
		to   *string
		from string
	}{{&c.title, r.title}, {&c.kind, r.kind}, {&c.name, r.name}} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	c.reports++
	told := len(r.input) > 0 && !emptyInput(r.input)
	switch {
	case r.asks && told:
		c.question = r.input
		if !partOf(c.question, c.input) { // it is about something else than was told
			c.input = r.input
		}
	case told, len(c.input) == 0:
		c.input = r.input
	}
	if rank(r.status) > rank(c.status) {
		c.status = r.status
	}
	if rank(c.status) >= rank(statusRuns) {
		c.hear(r)
	}
}

// hear takes what a call has said. Before it is made, agents show what it is to do
// in the same place.
func (c *call) hear(r report) {
	switch {
	case r.output != "":
		c.output = r.output
	case r.more != "":
		c.output = event.Truncate(c.output+r.more, event.MaxResultBytes)
	}
	if len(r.outputJSON) > 0 {
		c.outputJSON = r.outputJSON
	}
}

func emptyInput(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(raw, &members) == nil && len(members) == 0
}

func rank(status string) int {
	switch status {
	case statusQueued:
		return 1
	case statusRuns:
		return 2
	case statusDone, statusFailed:
		return 3
	default:
		return 0
	}
}

// grant lets one call pass that a person has approved.
type grant struct {
	callID string
	toolID string
	// arguments that the call has to have, and those that it gets.
	arguments, edited event.Object
	used              bool
}

// expected tells whether a call of a tool is still to come that was approved.
func (p *projector) expected(toolID string) bool {
	return slices.ContainsFunc(p.grants, func(g *grant) bool { return !g.used && g.toolID == toolID })
}

// grantFor gives the first grant for a call of a tool with these arguments.
func (p *projector) grantFor(toolID string, arguments event.Object) *grant {
	for _, g := range p.grants {
		if !g.used && g.toolID == toolID && (sameJSON(string(g.arguments), string(arguments)) || g.edited != "" && sameJSON(string(g.edited), string(arguments))) {
			return g
		}
	}
	return nil
}

// arrived says that a call of a tool came to the worker itself, under whose events
// it stands from now on. meta is what the agent says about it there.
func (p *projector) arrived(t harness.Tool, meta map[string]any) []event.Draft {
	p.brokered[t.ID]++
	for _, v := range flat(meta) {
		if c := p.calls[v]; c != nil && c.id == "" {
			c.tool = &offeredTool{Tool: t}
		}
	}
	return p.closeTexts()
}

// flat are the strings of metadata, at most one level down.
func flat(meta map[string]any) (out []string) {
	for _, v := range meta {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case map[string]any:
			for _, v := range v {
				if s, ok := v.(string); ok {
					out = append(out, s)
				}
			}
		}
		if len(out) > maxSearched {
			break
		}
	}
	return out
}

// ended says that the events of a call were ended by somebody else.
func (p *projector) ended(id string) {
	p.underway = slices.DeleteFunc(p.underway, func(open string) bool { return open == id })
	for _, c := range p.order {
		if c.id == id {
			c.ended = true
		}
	}
}

// finish closes whatever is open, calls as errors: no result is made up. The calls
// of keep stay open.
func (p *projector) finish(keep map[string]bool) []event.Draft {
	out := p.closeTexts()
	for _, c := range p.order {
		if c.id == "" && c.tool == nil && c.named() {
			out = append(out, p.follow(c, true)...)
		}
		if c.id == "" || c.ended || c.muted || keep[c.id] {
			continue
		}
		c.ended = true
		out = append(out, toolError(c.id, fault.ToolOutcomeUnknown))
	}
	for _, id := range p.underway {
		if c := p.callOf(id); !keep[id] && c == nil {
			out = append(out, toolError(id, fault.ToolOutcomeUnknown))
		}
	}
	p.underway = nil
	return out
}

func toolError(id string, code fault.Code) event.Draft {
	return event.Draft{Data: event.ToolError{ToolCallID: id, Code: string(code), Message: code.Message(), Retryable: code.Retryable()}}
}

// warn tells something once in a run.
func (p *projector) warn(code, text string) []event.Draft {
	if p.warned[code] {
		return nil
	}
	p.warned[code] = true
	return []event.Draft{{Data: event.Warning{Code: code, Message: text}}}
}
