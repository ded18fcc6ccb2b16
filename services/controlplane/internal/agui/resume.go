package agui

import (
	"encoding/json"
	"strconv"
	"strings"

	"cofferdam.dev/pkg/event"
)

// maxAnswers is how many interrupts one run may have open: as many as a canonical
// one has calls to approve.
const maxAnswers = 64

// Answer is one to an AG-UI interrupt.
type Answer struct {
	// InterruptID as the stream named it.
	InterruptID string
	// Cancelled leaves a form unanswered, and rejects a call.
	Cancelled bool
	// Payload is the answer's JSON, or empty.
	Payload json.RawMessage
}

// resumeEntry is the shape of an answer.
type resumeEntry struct {
	InterruptID string          `json:"interruptId"`
	Status      string          `json:"status"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	Metadata    map[string]any  `json:"metadata,omitempty"`
}

// answers reads the answers of an input; none where it starts a run of its own.
func answers(raw []json.RawMessage) ([]Answer, error) {
	if len(raw) > maxAnswers {
		return nil, invalid("/resume", "at most "+strconv.Itoa(maxAnswers)+" answers")
	}
	var out []Answer
	for n, r := range raw {
		at := "/resume/" + strconv.Itoa(n)
		var e resumeEntry
		if err := decode(r, &e, at); err != nil {
			return nil, err
		}
		switch {
		case e.Status != "resolved" && e.Status != "cancelled":
			return nil, invalid(at+"/status", "resolved or cancelled")
		case !event.ValidID(canonical(e.InterruptID)):
			return nil, invalid(at+"/interruptId", "required, the id of an open interrupt")
		case n > 0 && canonical(e.InterruptID) != canonical(out[0].InterruptID):
			return nil, invalid(at+"/interruptId", "all answers are to interrupts of one run")
		}
		out = append(out, Answer{InterruptID: e.InterruptID, Cancelled: e.Status == "cancelled", Payload: e.Payload})
	}
	return out, nil
}

// canonical is the interrupt that an AG-UI one is, or is one call of.
func canonical(id string) string {
	id, _, _ = strings.Cut(id, "/")
	return id
}

// Interrupt is the id of the canonical interrupt that the input answers, or "" if
// it starts a run of its own.
func (in Input) Interrupt() string {
	if len(in.Answers) == 0 {
		return ""
	}
	return canonical(in.Answers[0].InterruptID)
}

// Decision gives the answers as a decision on a canonical interrupt. Whether it
// fits what was asked is for whoever commits it. Errors: invalid_request, with the
// place in the detail.
func (in Input) Decision(asked event.InterruptRequested) (event.ResumeDecision, error) {
	if asked.InterruptType == event.InterruptFormInput {
		return in.form()
	}
	ids := (&interrupt{InterruptRequested: asked}).ids()
	var d event.ResumeDecision
	for n, a := range in.Answers {
		call := ""
		for i, id := range ids {
			if id == a.InterruptID {
				call = asked.ToolApprovals[i].ToolCallID
			}
		}
		if call == "" {
			return d, invalid("/resume/"+strconv.Itoa(n)+"/interruptId", "not one of this run")
		}
		t, err := a.onCall(call, "/resume/"+strconv.Itoa(n)+"/payload")
		if err != nil {
			return d, err
		}
		d.Tools = append(d.Tools, t)
	}
	if in.abandoned() && len(in.Answers) == len(ids) {
		return event.ResumeDecision{Dismiss: true}, nil // also where reject is not offered
	}
	return d, nil
}

// abandoned: the person answered nothing.
func (in Input) abandoned() bool {
	for _, a := range in.Answers {
		if !a.Cancelled {
			return false
		}
	}
	return true
}

func (in Input) form() (event.ResumeDecision, error) {
	switch a := in.Answers[0]; {
	case len(in.Answers) > 1:
		return event.ResumeDecision{}, invalid("/resume/1", "a form has one answer")
	case a.Cancelled:
		return event.ResumeDecision{Dismiss: true}, nil
	default:
		var values event.Object
		if err := decode(a.Payload, &values, "/resume/0/payload"); err != nil {
			return event.ResumeDecision{}, err
		}
		return event.ResumeDecision{Form: values}, nil
	}
}

func (a Answer) onCall(call, at string) (event.ToolDecision, error) {
	if a.Cancelled {
		return event.ToolDecision{ToolCallID: call, Decision: event.DecisionReject}, nil
	}
	var said struct {
		Decision  event.Decision `json:"decision"`
		Arguments event.Object   `json:"arguments,omitempty"`
	}
	if err := decode(a.Payload, &said, at); err != nil {
		return event.ToolDecision{}, err
	}
	return event.ToolDecision{ToolCallID: call, Decision: said.Decision, Arguments: said.Arguments}, nil
}
