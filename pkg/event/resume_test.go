package event_test

import (
	"errors"
	"reflect"
	"testing"

	"cofferdam.dev/pkg/event"
)

func askApproval(calls ...string) event.InterruptRequested {
	i := event.InterruptRequested{InterruptID: "int_1", InterruptType: event.InterruptToolApproval, AgentID: "demo"}
	for _, id := range calls {
		i.ToolApprovals = append(i.ToolApprovals, event.ToolApproval{
			ToolCallID: id, ToolName: "fs.write", ToolArgs: `{"a":1}`,
			AllowedDecisions: []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject},
		})
	}
	return i
}

func askForm() event.InterruptRequested {
	return event.InterruptRequested{
		InterruptID: "int_1", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Where to?",
		Fields: []event.FormField{
			{FieldName: "city", FieldType: "text", Required: true},
			{FieldName: "class", FieldType: "select", FieldValues: []string{"first", "second"}},
		},
	}
}

// Whatever a decision looks like that means the same, it becomes the same.
func TestDecisionsBecomeNormal(t *testing.T) {
	for name, tt := range map[string]struct {
		asked     event.InterruptRequested
		got, want event.ResumeDecision
	}{
		"order of calls, space in arguments": {
			askApproval("c1", "c2"),
			event.ResumeDecision{Tools: []event.ToolDecision{
				{ToolCallID: "c2", Decision: event.DecisionReject}, {ToolCallID: "c1", Decision: event.DecisionEdit, Arguments: "{ \"b\" : 2 }"},
			}},
			event.ResumeDecision{Tools: []event.ToolDecision{
				{ToolCallID: "c1", Decision: event.DecisionEdit, Arguments: `{"b":2}`}, {ToolCallID: "c2", Decision: event.DecisionReject},
			}},
		},
		"form":                 {askForm(), event.ResumeDecision{Form: ` {"city": "Ulm", "class":"first"}`}, event.ResumeDecision{Form: `{"city":"Ulm","class":"first"}`}},
		"what is not required": {askForm(), event.ResumeDecision{Form: `{"city":["Ulm","Bonn"]}`}, event.ResumeDecision{Form: `{"city":["Ulm","Bonn"]}`}},
		"dismissed form":       {askForm(), event.ResumeDecision{Dismiss: true}, event.ResumeDecision{Dismiss: true}},
		"dismissed approval":   {askApproval("c1"), event.ResumeDecision{Dismiss: true}, event.ResumeDecision{Dismiss: true}},
	} {
		got, err := tt.got.Normal(tt.asked)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestDecisionsThatDoNotFit(t *testing.T) {
	noEdit := askApproval("c1")
	noEdit.ToolApprovals[0].AllowedDecisions = []event.Decision{event.DecisionApprove, event.DecisionReject}
	one := func(d event.ToolDecision) event.ResumeDecision {
		return event.ResumeDecision{Tools: []event.ToolDecision{d}}
	}
	for name, tt := range map[string]struct {
		asked event.InterruptRequested
		d     event.ResumeDecision
	}{
		"nothing":                      {askForm(), event.ResumeDecision{}},
		"two things":                   {askForm(), event.ResumeDecision{Form: `{"city":"Ulm"}`, Dismiss: true}},
		"form for an approval":         {askApproval("c1"), event.ResumeDecision{Form: `{}`}},
		"decisions for a form":         {askForm(), one(event.ToolDecision{ToolCallID: "c1", Decision: event.DecisionApprove})},
		"a call too few":               {askApproval("c1", "c2"), one(event.ToolDecision{ToolCallID: "c1", Decision: event.DecisionApprove})},
		"another call":                 {askApproval("c1"), one(event.ToolDecision{ToolCallID: "c3", Decision: event.DecisionApprove})},
		"a call twice":                 {askApproval("c1", "c2"), event.ResumeDecision{Tools: []event.ToolDecision{{ToolCallID: "c1", Decision: event.DecisionApprove}, {ToolCallID: "c1", Decision: event.DecisionReject}}}},
		"a decision that is not open":  {noEdit, one(event.ToolDecision{ToolCallID: "c1", Decision: event.DecisionEdit, Arguments: `{}`})},
		"an unknown decision":          {askApproval("c1"), one(event.ToolDecision{ToolCallID: "c1", Decision: "maybe"})},
		"an edit without arguments":    {askApproval("c1"), one(event.ToolDecision{ToolCallID: "c1", Decision: event.DecisionEdit})},
		"arguments that are no object": {askApproval("c1"), one(event.ToolDecision{ToolCallID: "c1", Decision: event.DecisionEdit, Arguments: `[1]`})},
		"a key twice":                  {askApproval("c1"), one(event.ToolDecision{ToolCallID: "c1", Decision: event.DecisionEdit, Arguments: `{"a":1,"A":2}`})},
		"approved with arguments":      {askApproval("c1"), one(event.ToolDecision{ToolCallID: "c1", Decision: event.DecisionApprove, Arguments: `{}`})},
		"a required field missing":     {askForm(), event.ResumeDecision{Form: `{"class":"first"}`}},
		"a required field null":        {askForm(), event.ResumeDecision{Form: `{"city":null}`}},
		"a field nobody asked for":     {askForm(), event.ResumeDecision{Form: `{"city":"Ulm","admin":true}`}},
		"a value out of reach":         {askForm(), event.ResumeDecision{Form: `{"city":"Ulm","class":"third"}`}},
		"one of a list out of reach":   {askForm(), event.ResumeDecision{Form: `{"city":"Ulm","class":["first","third"]}`}},
		"an object as value":           {askForm(), event.ResumeDecision{Form: `{"city":{"a":1}}`}},
		"a list in a list":             {askForm(), event.ResumeDecision{Form: `{"city":[["Ulm"]]}`}},
		"a form that is no object":     {askForm(), event.ResumeDecision{Form: `"Ulm"`}},
	} {
		var v *event.ViolationError
		if got, err := tt.d.Normal(tt.asked); !errors.As(err, &v) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestDecisionOnACall(t *testing.T) {
	asked := askApproval("c1", "c2")
	d := event.ResumeDecision{Tools: []event.ToolDecision{{ToolCallID: "c1", Decision: event.DecisionApprove}, {ToolCallID: "c2", Decision: event.DecisionReject}}}
	for id, want := range map[string]event.Decision{"c1": event.DecisionApprove, "c2": event.DecisionReject, "delegating": ""} {
		if got := d.On(asked, id); got != want {
			t.Errorf("%s: %q", id, got)
		}
	}
	if got := (event.ResumeDecision{Dismiss: true}).On(asked, "c1"); got != event.DecisionReject {
		t.Errorf("dismissed: %q", got)
	}
}

func TestInterruptBody(t *testing.T) {
	body := []byte(`{"interrupt_id":"int_1","interrupt_type":"form_input","agent_id":"demo","prompt":"Where?","fields":[{"field_name":"city","field_type":"text","required":true}]}`)
	i, err := event.DecodeInterrupt(body, event.Bounds{})
	if err != nil || i.InterruptID != "int_1" || len(i.Fields) != 1 {
		t.Errorf("%+v, %v", i, err)
	}
	for _, bad := range []string{`{}`, `null`, `[]`, string(body[:len(body)-1]) + `,"x":1}`, `{"interrupt_id":"int_1","interrupt_type":"form_input","agent_id":"demo"}`} {
		if _, err := event.DecodeInterrupt([]byte(bad), event.Bounds{}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func FuzzResumeDecision(f *testing.F) {
	f.Add(`{"city":"Ulm"}`, `{"a":1}`, "edit")
	f.Add(`{"city":["a",1]}`, `{}`, "approve")
	f.Fuzz(func(t *testing.T, values, arguments, decision string) {
		for asked, d := range map[string]event.ResumeDecision{
			"form": {Form: event.Object(values)},
			"tool": {Tools: []event.ToolDecision{{ToolCallID: "c1", Decision: event.Decision(decision), Arguments: event.Object(arguments)}}},
		} {
			i := askForm()
			if asked == "tool" {
				i = askApproval("c1")
			}
			n, err := d.Normal(i)
			if err != nil {
				continue
			}
			if again, err := n.Normal(i); err != nil || !reflect.DeepEqual(again, n) {
				t.Errorf("%+v is not normal: %+v, %v", n, again, err)
			}
		}
	})
}
