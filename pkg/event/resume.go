package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"cofferdam.dev/pkg/strictjson"
)

// MaxFormBytes is how long the answer to a form may be.
const MaxFormBytes = 64 << 10

// ResumeDecision is what a person decided about an interrupt: exactly one of its
// fields.
type ResumeDecision struct {
	// Form has the values by field name: one object.
	Form Object `json:"form,omitempty"`
	// Dismiss leaves a form unanswered, and rejects every call.
	Dismiss bool `json:"dismiss,omitempty"`
	// Tools has one decision for each call that the interrupt names.
	Tools []ToolDecision `json:"tool_decisions,omitempty"`
}

// ToolDecision decides on one call.
type ToolDecision struct {
	ToolCallID string   `json:"tool_call_id"`
	Decision   Decision `json:"decision"`
	// Arguments of an edit, and only of one.
	Arguments Object `json:"arguments,omitempty"`
}

// Normal checks a decision against the interrupt that it answers, and gives it
// in the one form that all repeats of it have: calls in the order in which the
// interrupt names them, JSON without insignificant space. Whether edited
// arguments fit their tool is not looked at. Errors: *ViolationError with rule 0
// that names the field.
func (d ResumeDecision) Normal(i InterruptRequested) (ResumeDecision, error) {
	bounds := Bounds{}.effective()
	c := &checker{bounds: &bounds}
	given := 0
	for _, is := range []bool{d.Form != "", d.Dismiss, len(d.Tools) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		c.fail("decision", "exactly one of form, dismiss and tool_decisions")
	case d.Dismiss:
	case d.Form != "" && i.InterruptType == InterruptFormInput:
		d.Form = i.checkAnswer(c, d.Form)
	case len(d.Tools) > 0 && i.InterruptType == InterruptToolApproval:
		d.Tools = i.checkDecisions(c, d.Tools)
	default:
		c.fail("decision", "answers another type of interrupt")
	}
	if c.err != nil {
		return ResumeDecision{}, c.err
	}
	return d, nil
}

// checkAnswer checks the values of a form: fields that it has, all that are
// required, scalars or lists of scalars, and only what could be chosen.
func (d InterruptRequested) checkAnswer(c *checker, form Object) Object {
	c.json("form", string(form), MaxFormBytes, 2)
	c.object("form", form)
	if c.err != nil {
		return ""
	}
	kept, err := compact([]byte(form))
	var values map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal([]byte(kept), &values)
	}
	if err != nil {
		c.fail("form", "not acceptable as JSON")
		return ""
	}
	for _, f := range d.Fields {
		value, given := values[f.FieldName]
		delete(values, f.FieldName)
		switch {
		case !given || string(value) == "null":
			if f.Required {
				c.fail("form", "a required field is missing")
			}
		case !f.takes(value):
			c.fail("form", "a value is none of those that can be chosen")
		}
	}
	if len(values) > 0 {
		c.fail("form", "a field that the form does not have")
	}
	return Object(kept)
}

// takes reports whether a value, or each of a list, may be given for the field.
func (f FormField) takes(value json.RawMessage) bool {
	var list []json.RawMessage
	switch value[0] {
	case '{':
		return false
	case '[':
		if json.Unmarshal(value, &list) != nil {
			return false
		}
	default:
		list = []json.RawMessage{value}
	}
	return !slices.ContainsFunc(list, func(v json.RawMessage) bool { return !f.takesOne(v) })
}

func (f FormField) takesOne(value json.RawMessage) bool {
	if value[0] == '{' || value[0] == '[' {
		return false
	}
	if len(f.FieldValues) == 0 {
		return true
	}
	var text string
	return json.Unmarshal(value, &text) == nil && slices.Contains(f.FieldValues, text)
}

func (d InterruptRequested) checkDecisions(c *checker, given []ToolDecision) []ToolDecision {
	if len(given) != len(d.ToolApprovals) {
		c.fail("tool_decisions", "one decision for each call that the interrupt names")
		return nil
	}
	out := make([]ToolDecision, 0, len(given))
	for _, a := range d.ToolApprovals {
		at := slices.IndexFunc(given, func(g ToolDecision) bool { return g.ToolCallID == a.ToolCallID })
		if at < 0 {
			c.fail("tool_decisions", "one decision for each call that the interrupt names")
			return nil
		}
		out = append(out, a.checkDecision(c, given[at]))
	}
	return out
}

func (a ToolApproval) checkDecision(c *checker, d ToolDecision) ToolDecision {
	switch {
	case !slices.Contains(a.AllowedDecisions, d.Decision):
		c.fail("tool_decisions.decision", notOneOf)
	case d.Decision != DecisionEdit && d.Arguments != "":
		c.fail("tool_decisions.arguments", "only with the decision edit")
	case d.Decision == DecisionEdit:
		c.arguments("tool_decisions.arguments", d.Arguments)
		if c.err == nil {
			kept, err := compact([]byte(d.Arguments))
			if err != nil {
				c.fail("tool_decisions.arguments", "not acceptable as JSON")
			}
			d.Arguments = Object(kept)
		}
	}
	return d
}

// Hash tells a decision, in its normal form, from any other one on what the run
// askedBy asked: 64 hexadecimal digits, which the committed record keeps.
func (d ResumeDecision) Hash(askedBy string) string {
	tools := make([]ToolDecision, len(d.Tools))
	for i, t := range d.Tools {
		if t.Arguments == "" { // an absent object cannot be marshalled
			t.Arguments = EmptyObject
		}
		tools[i] = t
	}
	raw, err := json.Marshal(struct {
		RunID   string
		Form    string
		Dismiss bool
		Tools   []ToolDecision
	}{askedBy, string(d.Form), d.Dismiss, tools})
	if err != nil { // it was checked to be JSON
		return ""
	}
	return InterruptHash(raw)
}

// InterruptHash is what the committed record keeps of an interrupt: 64 hexadecimal
// digits of its body, see InterruptBody.
func InterruptHash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// On gives the decision on a call that the interrupt names; empty on any other.
func (d ResumeDecision) On(i InterruptRequested, toolCallID string) Decision {
	if !slices.ContainsFunc(i.ToolApprovals, func(a ToolApproval) bool { return a.ToolCallID == toolCallID }) {
		return ""
	}
	for _, t := range d.Tools {
		if t.ToolCallID == toolCallID {
			return t.Decision
		}
	}
	return DecisionReject // it was dismissed
}

// DecodeInterrupt takes the payload of interrupt.requested from its published
// form, as Decode does. Errors: *ViolationError with rule 0.
func DecodeInterrupt(text []byte, b Bounds) (InterruptRequested, error) {
	b = b.effective()
	d, err := decodeAs[InterruptRequested](text, strictjson.Options{
		MaxBytes: b.EventBytes, MaxDepth: b.ArgumentsDepth + 4, AllowCaseVariants: true, RequireFields: true,
	})
	if err != nil {
		return InterruptRequested{}, undecodable(0, err)
	}
	i, ok := d.(InterruptRequested)
	if !ok {
		return InterruptRequested{}, &ViolationError{Field: "data", Reason: notOneOf}
	}
	c := &checker{bounds: &b, at: "data."}
	i.check(c)
	if c.err != nil {
		return InterruptRequested{}, c.err
	}
	return i, nil
}

// InterruptBody is the published form of an interrupt's payload, without the
// envelope: what the hash in the committed record is made of.
func InterruptBody(d InterruptRequested) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // as the log has it
	if err := e.Encode(d); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
