package native

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/native/model"
)

const formSchema = `{
  "type": "object",
  "properties": {
    "prompt": {"type": "string", "description": "What the person is asked, in a sentence or two."},
    "fields": {
      "type": "array",
      "description": "The fields of the form. Without any there is one field for a text, named answer.",
      "items": {
        "type": "object",
        "properties": {
          "name": {"type": "string"},
          "label": {"type": "string"},
          "description": {"type": "string"},
          "type": {"enum": ["text", "textarea", "number", "boolean", "select", "multiselect"]},
          "values": {"type": "array", "items": {"type": "string"}, "description": "What can be chosen from."},
          "required": {"type": "boolean"}
        },
        "required": ["name", "type"],
        "additionalProperties": false
      }
    }
  },
  "required": ["prompt"],
  "additionalProperties": false
}`

// askUser is the tool by which a model asks the person. It is a form interrupt,
// and the last call of its answer: what stands before it is done first, and an
// approval is asked for first, in an interrupt of its own.
func askUser() *tool {
	return &tool{
		Offer: model.Offer{
			Name: "ask_user", Schema: schema(formSchema),
			Description: "Asks the person a question by a form and waits for the answer. It must be the last call of an answer.",
		},
		id: namespace + "ask_user", kind: toolForm,
	}
}

type formArgs struct {
	Prompt string      `json:"prompt"`
	Fields []formField `json:"fields,omitempty"`
}

type formField struct {
	Name        string   `json:"name"`
	Label       string   `json:"label,omitempty"`
	Description string   `json:"description,omitempty"`
	Type        string   `json:"type"`
	Values      []string `json:"values,omitempty"`
	Required    bool     `json:"required,omitempty"`
}

// lastForm says whether the ith open call is a form that is in its place.
func (l *level) lastForm(i int, t *tool) bool {
	return i == len(l.conv.Open)-1 && (l.conv.Open[i].Progress == callForm || t != nil && t.kind == toolForm)
}

// askForm comes to the form, once nothing else is open.
func (l *level) askForm(ctx context.Context, a answer) (waits bool, err error) {
	last := len(l.conv.Open) - 1
	o, c := &l.conv.Open[last], a.calls[last]
	if o.Progress == callDone {
		return false, nil
	}
	if o.Progress == callForm {
		return false, l.takeAnswer(ctx, o, c)
	}
	t := l.agent.tools[c.Name]
	q, err := l.questionOf(c)
	if l.toolCalls.Add(1) > int64(l.construction.Limits.ToolCalls) {
		err = fault.New(fault.Capacity, "native.form", fault.Detail("the run has used up its tool calls: answer without further ones"))
	}
	if err != nil {
		if serr := l.started(ctx, c, t.id, a.messageID); serr != nil {
			return false, serr
		}
		return false, l.failed(ctx, o, err)
	}
	// The call itself stands in the run that gives its answer: a form leaves no
	// tool call open.
	o.Progress, l.question = callForm, q
	return true, nil
}

// questionOf makes the interrupt of a call, or says what is wrong with it.
func (l *level) questionOf(c toolCall) (*event.InterruptRequested, error) {
	const op = "native.form"
	var args formArgs
	if c.refused {
		return nil, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail("arguments: one JSON object without doubled keys"))
	}
	if err := strictjson.Unmarshal(c.Arguments, &args, strictjson.Options{MaxBytes: event.MaxArgumentsBytes, RequireFields: true}); err != nil {
		return nil, fault.Wrap(err, fault.ToolArgumentsInvalid, op, fault.Detail("arguments: "+err.Error()))
	}
	q := &event.InterruptRequested{
		InterruptID: l.interruptID(), InterruptType: event.InterruptFormInput, AgentID: l.agent.id, Prompt: event.SanitizeText(args.Prompt),
	}
	if len(args.Fields) == 0 {
		args.Fields = []formField{{Name: "answer", Type: "text", Required: true}}
	}
	for _, f := range args.Fields {
		q.Fields = append(q.Fields, event.FormField{
			FieldName: f.Name, FieldLabel: f.Label, FieldDescription: f.Description, FieldType: f.Type, FieldValues: f.Values, Required: f.Required,
		})
	}
	probe := event.Draft{Data: *q}.Event("run", "conversation", 0, time.Unix(1, 0))
	if err := event.Validate(probe, event.Bounds{}); err != nil {
		return nil, fault.Wrap(err, fault.ToolArgumentsInvalid, op, fault.Detail(fmt.Sprintf("arguments: %v", err)))
	}
	return q, nil
}

// takeAnswer gives the model what the person answered.
func (l *level) takeAnswer(ctx context.Context, o *openCall, c toolCall) error {
	const op = "native.form"
	if l.decided == nil || !l.decided.Dismissed && len(l.decided.Form) == 0 {
		return fault.Wrap(fmt.Errorf("no answer to call %s", c.CallID), fault.InterruptConflict, op)
	}
	if err := l.started(ctx, c, namespace+"ask_user", ""); err != nil {
		return err
	}
	if l.decided.Dismissed {
		return l.ended(ctx, o, said("The person dismissed the form without an answer."), nil)
	}
	value, _ := event.ProjectJSON(l.decided.Form, event.MaxResultBytes)
	return l.ended(ctx, o, produced{text: string(json.RawMessage(l.decided.Form)), value: value}, nil)
}
