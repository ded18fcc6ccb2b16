package agui

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"cofferdam.dev/pkg/event"
)

// ProtocolVersion of AG-UI that the encoder speaks.
const ProtocolVersion = "1.0"

// Encoder encodes the canonical events of one run, from its first, as AG-UI
// events. It is not safe for concurrent use.
type Encoder struct {
	threadID, runID string
	client          Input

	machine *event.Machine
	failed  error
	ids     ids
	// at and sequence are those of the event that is being encoded.
	at       int64
	sequence uint64
	out      [][]byte

	texts     map[string]string // canonical id of every text so far -> agent
	calls     map[string]*call  // canonical id of the open calls
	carried   []event.Carried   // calls that an earlier run has opened
	askedBy   string            // that run
	agents    map[string]agent  // path of the open namespaces
	usage     *event.UsageUpdated
	interrupt *interrupt
	revision  *uint64
	history   history
}

// Option of an Encoder.
type Option func(*Encoder)

// Echo tells the encoder what the client sent, for the snapshots before an
// interrupt: they replace what the client has. Without it they have an empty
// state and the messages of the run.
func Echo(in Input) Option { return func(e *Encoder) { e.client = in } }

// Resumes tells the encoder of a run that resumes an interrupt which calls the
// run that asked has opened: the client has them, and gets their results alone.
func Resumes(askedBy string, carried []event.Carried) Option {
	return func(e *Encoder) { e.askedBy, e.carried = askedBy, carried }
}

// NewEncoder makes the encoder of one run. threadID and runID are the ids that
// the client knows the conversation and the run by; the canonical run id stands
// in the metadata of RUN_STARTED and of the terminal.
func NewEncoder(threadID, runID string, opts ...Option) *Encoder {
	e := &Encoder{
		threadID: threadID, runID: runID,
		texts: make(map[string]string), calls: make(map[string]*call), agents: make(map[string]agent),
	}
	for _, o := range opts {
		o(e)
	}
	return e
}

// Encode gives the AG-UI events of the next canonical event, in their order,
// each as one line of JSON; often there are none. Before a terminal they close
// what is open. An event that the lifecycle does not allow is an error, which
// lasts: the stream has to be broken off then.
func (e *Encoder) Encode(ev event.Event) ([][]byte, error) {
	if e.failed != nil {
		return nil, e.failed
	}
	e.out = nil
	closers, err := e.judge(ev)
	if errors.Is(err, event.ErrEmptyDelta) {
		return nil, nil
	}
	if err != nil {
		e.failed = err
		return nil, err
	}
	e.at, e.sequence = ev.Timestamp.UnixMilli(), ev.Sequence
	for _, d := range closers {
		e.encode(d)
	}
	e.encode(ev.Draft())
	return e.out, e.failed
}

// judge takes an event into the run, and says what has to be closed before it.
func (e *Encoder) judge(ev event.Event) (closers []event.Draft, err error) {
	if e.machine == nil {
		e.machine = event.NewMachine(ev.RunID, ev.ConversationID, event.Bounds{}, e.carried...)
		e.ids.run = ev.RunID
	}
	if ev.Type().Terminal() {
		closers = e.machine.Closers(ev.Data)
	}
	return closers, e.machine.Accept(ev)
}

// Reopen gives the AG-UI events that open again what is open now, for a client
// that comes back with what it has of the run and is sent RUN_STARTED and then
// only the rest.
func (e *Encoder) Reopen() ([][]byte, error) {
	if e.machine == nil || e.failed != nil {
		return nil, e.failed
	}
	e.out = nil
	if _, over := e.machine.Terminal(); over {
		return nil, nil
	}
	for _, it := range e.machine.OpenItems() {
		by := e.agent(it.Namespace)
		switch it.Kind {
		case event.ItemText:
			e.startText(by, it.ID)
		case event.ItemReasoning:
			e.startReasoning(by, it.ID)
		case event.ItemTool:
			if c := e.calls[it.ID]; c != nil {
				e.startCall(c, it.ID)
			}
		case event.ItemNamespace:
			e.startAgent(e.agents[path(it.Namespace)])
		}
	}
	return e.out, e.failed
}

// encode writes the frames of a payload that the machine has taken.
func (e *Encoder) encode(d event.Draft) {
	by := e.agent(d.Namespace)
	switch p := d.Data.(type) {
	case event.RunStarted:
		e.runStarted()
	case event.TextStarted:
		e.textStarted(by, p)
	case event.TextDelta:
		e.textDelta(by, p)
	case event.TextFinished:
		e.put(messageFrame{base: e.base("TEXT_MESSAGE_END", by), MessageID: e.ids.text(p.MessageID)})
	case event.ReasoningStarted:
		e.reasoningStarted(by, p)
	case event.ReasoningDelta:
		e.reasoningDelta(by, p)
	case event.ReasoningFinished:
		e.reasoningFinished(by, p)
	case event.ToolStarted:
		e.toolStarted(by, p)
	case event.ToolArgumentsDelta:
		e.toolArguments(p)
	case event.ToolFinished:
		e.toolFinished(by, p)
	case event.ToolError:
		e.toolError(by, p)
	case event.NamespaceEntered:
		e.entered(d.Namespace, p)
	case event.NamespaceExited:
		e.exited(d.Namespace, p)
	case event.InterruptRequested:
		e.interrupt = &interrupt{InterruptRequested: p, by: by}
	case event.Warning:
		e.warning(by, p)
	case event.UsageUpdated:
		if p.Final {
			e.usage = &p
		}
	case event.ProviderMetadata: // for operators only
	default:
		e.terminal(p)
	}
}

// ids makes AG-UI ids, which are unique in a conversation, of canonical ones,
// which are unique in a run. A canonical id has no slash.
type ids struct{ run string }

func (i ids) text(id string) string      { return i.run + "/text/" + id }
func (i ids) reasoning(id string) string { return i.run + "/reasoning/" + id }
func (i ids) call(id string) string      { return i.run + "/call/" + id }
func (i ids) result(id string) string    { return i.run + "/result/" + id }

// callID is the id that the client knows a call by: that of the run that opened
// it.
func (e *Encoder) callID(id string) string {
	if slices.ContainsFunc(e.carried, func(c event.Carried) bool { return c.ToolCallID == id }) {
		return ids{run: e.askedBy}.call(id)
	}
	return e.ids.call(id)
}

// agent is named by the event that entered it: one path may be entered again.
func (i ids) agent(sequence uint64) string {
	return i.run + "/agent/" + strconv.FormatUint(sequence, 10)
}

// path identifies an open namespace.
func path(namespace []string) string { return strings.Join(namespace, "/") }

// agent is the AG-UI id of the subagent whose namespace that is; "" for the root.
func (e *Encoder) agent(namespace []string) string { return e.agents[path(namespace)].id }
