// Package customsse encodes a run as frames of the custom SSE protocol, the
// published one of chat clients: a name and one object a frame. canonical-events,
// "Public encodings", has the table.
package customsse

import (
	"bytes"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/jsonline"
)

// The names of frames.
const (
	content       = "content"
	reasoning     = "reasoning"
	toolStart     = "tool_start"
	toolEnd       = "tool_end"
	namespace     = "namespace"
	warning       = "warning"
	usage         = "usage"
	inputRequired = "input_required"
	done          = "done"
	cancelled     = "cancelled"
	failed        = "error"
)

// Frame is one SSE frame.
type Frame struct {
	// Event is its name.
	Event string
	// Data is one line of JSON: the payload of the canonical event, and run_id,
	// sequence and namespace.
	Data []byte
}

// Encoder encodes the canonical events of one run, from its first. It is not safe
// for concurrent use.
type Encoder struct {
	carried  []event.Carried
	machine  *event.Machine
	failed   error
	asked    *event.Draft // the interrupt that the run has requested
	revision *uint64
}

// NewEncoder makes the encoder of one run. carried are the calls that the run
// takes over from the one that it resumes.
func NewEncoder(carried []event.Carried) *Encoder { return &Encoder{carried: carried} }

// SetRevision sets the revision that a resume must name. It is assigned when the
// interrupt is committed; unless it is set before run.interrupted is encoded,
// input_required has none.
func (e *Encoder) SetRevision(revision uint64) { e.revision = &revision }

// Encode gives the frames of the next canonical event: none, one, or before a
// terminal those that close what is open, which have the terminal's sequence. An
// event that the lifecycle does not allow is an error, which lasts: the stream has
// to be broken off then.
func (e *Encoder) Encode(ev event.Event) ([]Frame, error) {
	if e.failed != nil {
		return nil, e.failed
	}
	if e.machine == nil {
		e.machine = event.NewMachine(ev.RunID, ev.ConversationID, event.Bounds{}, e.carried...)
	}
	var drafts []event.Draft
	if ev.Type().Terminal() {
		drafts = e.machine.Closers(ev.Data)
	}
	err := e.machine.Accept(ev)
	if errors.Is(err, event.ErrEmptyDelta) {
		return nil, nil
	}
	if err != nil {
		e.failed = err
		return nil, err
	}
	var out []Frame
	for _, d := range append(drafts, ev.Draft()) {
		f, err := e.frame(ev, d)
		if err != nil {
			e.failed = fmt.Errorf("customsse: %w", err)
			return nil, e.failed
		}
		if f != nil {
			out = append(out, *f)
		}
	}
	return out, nil
}

// frame is that of one payload, or nil where it has none.
func (e *Encoder) frame(ev event.Event, d event.Draft) (*Frame, error) {
	name := ""
	switch p := d.Data.(type) {
	case event.TextDelta:
		name = content
	case event.ReasoningDelta:
		name = reasoning
	case event.ToolStarted:
		name = toolStart
	case event.ToolFinished, event.ToolError:
		name = toolEnd
	case event.NamespaceEntered, event.NamespaceExited:
		name = namespace
	case event.Warning:
		name = warning
	case event.UsageUpdated:
		if p.Final {
			name = usage
		}
	case event.InterruptRequested:
		e.asked = &d // it is sent with run.interrupted: before that it is not committed
	case event.RunInterrupted:
		return e.question(ev)
	case event.RunFinished:
		name = done
	case event.RunCancelled:
		name = cancelled
	case event.RunError:
		name = failed
	default: // the others have none
	}
	if name == "" {
		return nil, nil
	}
	payload, err := jsonline.Encode(d.Data)
	if err != nil {
		return nil, err
	}
	return joined(name, payload, tail{RunID: ev.RunID, Sequence: ev.Sequence, Namespace: path(d.Namespace)})
}

// question is the frame of an interrupt: what was asked, and how to answer.
func (e *Encoder) question(ev event.Event) (*Frame, error) {
	asked, ok := e.asked.Data.(event.InterruptRequested) // the machine lets no run end so without
	if !ok {
		return nil, errors.New("an interrupt that nothing asks for")
	}
	payload, err := event.InterruptBody(asked)
	if err != nil {
		return nil, err
	}
	return joined(inputRequired, payload, tail{RunID: ev.RunID, Sequence: ev.Sequence, Namespace: path(e.asked.Namespace), Revision: e.revision})
}

// tail is what stands in every frame beside the payload.
type tail struct {
	Revision  *uint64  `json:"revision,omitempty"`
	RunID     string   `json:"run_id"`
	Sequence  uint64   `json:"sequence"`
	Namespace []string `json:"namespace"`
}

func path(namespace []string) []string {
	if namespace == nil {
		return []string{} // an array always
	}
	return namespace
}

// joined makes one object of a payload, which is an object of other keys, and the
// tail.
func joined(name string, payload []byte, t tail) (*Frame, error) {
	rest, err := jsonline.Encode(t)
	if err != nil {
		return nil, err
	}
	payload, isObject := bytes.CutSuffix(payload, []byte("}"))
	if !isObject {
		return nil, errors.New("a payload that is no object")
	}
	if !bytes.HasSuffix(payload, []byte("{")) {
		payload = append(payload, ',')
	}
	return &Frame{Event: name, Data: append(payload, rest[1:]...)}, nil
}
