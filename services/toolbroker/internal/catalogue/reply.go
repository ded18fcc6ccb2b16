package catalogue

import (
	"encoding/json"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/elicit"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
	"cofferdam.dev/services/toolbroker/internal/project"
)

const (
	// asks is what a model reads of a call that waits for the user's answer.
	asks = "The tool asks the user for input before it goes on. It has not done what was asked."
	// cancelledQuestion stands before the answer of a tool that asked in the midst of
	// a call and may not be called a second time.
	// misshapen stands in the place of structured content that is not what the server
	// says that it is: a model must not rest on it.
	misshapen         = "[The structured content of this result does not fit the schema that the tool's server gives for it, and is left out.]"
	cancelledQuestion = "[The tool asked the user for input in the midst of this call, which cannot wait for an answer: it was told that the question is cancelled.]"
)

// reply is what came of a call in a revision of the protocol, without the
// credential that it was made with.
func (t *Tool) reply(a mcpcall.Answer, version string, redact project.Redactor) call.Reply {
	out := call.Reply{Progress: a.Progress}
	var notes []string
	q, asked := a.Question(version)
	if a.Asked != nil {
		// Only what the operator vouched for is called again: what the tool did
		// before it asked would be done twice.
		asked = asked && t.repeatable
		notes = append(notes, cancelledQuestion)
	}
	if asked {
		out.Asked = question(q, redact)
	}
	if out.Asked != nil {
		out.Result = project.Failure(asks, redact)
		return out
	}
	if a.Error != nil {
		// One byte can take six in JSON.
		message := event.Truncate(redact.Cut(a.Error.Message), t.maxResult/8)
		out.Result = project.RPCError(a.Error.Code, message, redact)
		return out
	}
	if result, fits := t.fitting(a.Result); !fits {
		a.Result = result
		notes = append(notes, misshapen)
	}
	out.Result = project.AnswerWithin(a.Result, redact, t.maxResult, notes...)
	return out
}

// fitting gives a result without its structured content where that does not fit the
// output schema. What is in no form of the protocol is somebody else's to judge.
func (t *Tool) fitting(result json.RawMessage) (_ json.RawMessage, fits bool) {
	d := t.definition.Load()
	var fields map[string]json.RawMessage
	if d == nil || d.output == nil || json.Unmarshal(result, &fields) != nil {
		return result, true
	}
	structured, there := fields["structuredContent"]
	// Cases and characters are cleaned up where it is shown.
	o := strictjson.Options{MaxBytes: len(structured), MaxDepth: maxToolDepth, AllowCaseVariants: true, AllowControls: true}
	var object map[string]any
	if !there || strictjson.Unmarshal(structured, &object, o) == nil && object != nil && d.output.Check(object) == nil {
		return result, true
	}
	delete(fields, "structuredContent")
	rest, err := json.Marshal(fields)
	if err != nil { // it was JSON a moment ago
		return result, true
	}
	return rest, false
}

// question is what may be asked; nil where it is in no form of the protocol.
func question(in mcpcall.Input, redact project.Redactor) *call.Asked {
	q, err := elicit.Parse(in.Params, redact.Cut)
	if err != nil || len(in.Key) > event.MaxIDLength || len(in.State) > elicit.MaxBytes {
		return nil
	}
	return &call.Asked{Question: q, Params: in.Params, Key: in.Key, State: []byte(in.State)}
}
