package delegate

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/toolbroker/internal/call"
)

// relay makes of the events of a delegated run those of a namespace in the run that
// delegates. Ids get a prefix of the call's: what a worker calls its messages must
// not stand in the way of another's.
type relay struct {
	within call.Within
	agent  string
	root   string // of the namespace
	prefix string
	run    *event.Machine // nil before its first event
	last   event.Event
	done   bool
}

func newRelay(w call.Within, agentID string, run Run) *relay {
	key := w.Envelope.IdempotencyKey
	sum := sha256.Sum256([]byte(key))
	r := &relay{within: w, agent: agentID, root: key, prefix: strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5])) + "."}
	name := run.AgentName()
	if name == "" {
		name = agentID
	}
	r.last = event.Event{RunID: run.ID(), ConversationID: run.ID(), Timestamp: time.Now().UTC()}
	r.tell(nil, event.NamespaceEntered{AgentID: agentID, AgentName: name, ParentToolCallID: key})
	return r
}

// take tells of an event of the run, which has to be lawful there.
func (r *relay) take(e event.Event) error {
	if r.run == nil {
		r.run = event.NewMachine(e.RunID, e.ConversationID, event.Bounds{})
	}
	if err := r.run.Accept(e); err != nil {
		return err
	}
	r.last = e
	r.pass(e.Draft())
	return nil
}

// end closes what the run has left open, and its namespace; only the first end
// counts.
func (r *relay) end(how event.Data, outcome event.NamespaceOutcome) {
	if r.done {
		return
	}
	if r.run != nil {
		for _, d := range r.run.Closers(how) {
			r.pass(d)
		}
	}
	r.tell(nil, event.NamespaceExited{AgentID: r.agent, ParentToolCallID: r.root, Outcome: outcome})
	r.done = true
}

// pass tells of a draft of the run with other ids. What concerns the run itself,
// such as its usage, is told there alone.
func (r *relay) pass(d event.Draft) {
	data := r.renamed(d.Data)
	if data == nil {
		return
	}
	path := make([]string, len(d.Namespace))
	for i, n := range d.Namespace {
		path[i] = r.id(n)
	}
	r.tell(path, data)
}

// tell tells of something at a path below the call. What is too deep for an event
// is left out, as is everything in it.
func (r *relay) tell(path []string, data event.Data) {
	if r.within.Tell == nil || len(path) >= event.MaxNamespaceDepth {
		return
	}
	e := r.last
	e.Namespace, e.Data = append([]string{r.root}, path...), data
	r.within.Tell(e)
}

// renamed is the payload with its ids as they are here; nil for one that is not
// told.
func (r *relay) renamed(d event.Data) event.Data {
	switch d := d.(type) {
	case event.TextStarted:
		d.MessageID = r.id(d.MessageID)
		return d
	case event.TextDelta:
		d.MessageID = r.id(d.MessageID)
		return d
	case event.TextFinished:
		d.MessageID = r.id(d.MessageID)
		return d
	case event.ReasoningStarted:
		d.MessageID = r.id(d.MessageID)
		return d
	case event.ReasoningDelta:
		d.MessageID = r.id(d.MessageID)
		return d
	case event.ReasoningFinished:
		d.MessageID = r.id(d.MessageID)
		return d
	case event.ToolStarted:
		d.ToolCallID = r.id(d.ToolCallID)
		if d.ParentMessageID != "" {
			d.ParentMessageID = r.id(d.ParentMessageID)
		}
		return d
	case event.ToolArgumentsDelta:
		d.ToolCallID = r.id(d.ToolCallID)
		return d
	case event.ToolFinished:
		d.ToolCallID = r.id(d.ToolCallID)
		return d
	case event.ToolError:
		d.ToolCallID = r.id(d.ToolCallID)
		return d
	case event.NamespaceEntered:
		d.ParentToolCallID = r.id(d.ParentToolCallID)
		return d
	case event.NamespaceExited:
		d.ParentToolCallID = r.id(d.ParentToolCallID)
		return d
	case event.Warning:
		return d
	default:
		return nil
	}
}

// id is an id of the run as it is here: within the bound of all ids.
func (r *relay) id(id string) string {
	if named := r.prefix + id; len(named) <= event.MaxIDLength {
		return named
	}
	sum := sha256.Sum256([]byte(id))
	return r.prefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}
