package elicit_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/toolbroker/internal/elicit"
)

func plain(s string) string { return s }

// everything is what server-everything asks, cut down to one of each kind.
const everything = `{"message":"Please provide inputs:","mode":"","requestedSchema":{"type":"object","properties":{
	"name":{"title":"String","type":"string","description":"Your name"},
	"check":{"type":"boolean"},
	"email":{"type":"string","format":"email"},
	"integer":{"type":"integer","minimum":1,"maximum":100,"default":42},
	"number":{"type":"number","default":3.14},
	"friend":{"type":"string","enum":["Monica","Rachel"],"default":"Monica"},
	"instruments":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["Guitar","Piano","Violin"]},"default":["Guitar"]},
	"hero":{"type":"string","oneOf":[{"const":"hero-1","title":"Superman"},{"const":"hero-2","title":"Lantern"}]},
	"fish":{"type":"array","items":{"anyOf":[{"const":"fish-1","title":"Tuna"}]}},
	"pet":{"type":"string","enum":["pet-1","pet-2"],"enumNames":["Cats","Dogs"],"default":"pet-1"}},"required":["name"]}}`

func TestAQuestionBecomesAForm(t *testing.T) {
	t.Parallel()
	q, err := elicit.Parse(json.RawMessage(everything), plain)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range q.Fields {
		got = append(got, f.FieldName+" "+f.FieldType+" "+strings.Join(f.FieldValues, ",")+" "+string(f.DefaultValue))
	}
	want := []string{
		"name text  ", "check boolean  ", "email text  ", "integer number  42", "number number  3.14", `friend select Monica,Rachel "Monica"`,
		`instruments multiselect Guitar,Piano,Violin ["Guitar"]`, "hero select hero-1,hero-2 ", "fish multiselect fish-1 ", `pet select pet-1,pet-2 "pet-1"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("fields:\n%s", strings.Join(got, "\n"))
	}
	if !q.Fields[0].Required || q.Fields[1].Required || q.Fields[7].FieldDescription != "(hero-1: Superman; hero-2: Lantern)" || q.Fields[2].Placeholder != "email" {
		t.Errorf("fields: %+v", q.Fields)
	}
	for form, want := range map[string]string{
		`{"name":"Ada"}`: `{"friend":"Monica","instruments":["Guitar"],"integer":42,"name":"Ada","number":3.14,"pet":"pet-1"}`,
		`{"name":"Ada","check":"true","integer":"7","number":"1e2","fish":"fish-1","hero":"hero-2","instruments":["Piano","Violin"],"friend":null}`: `{"check":true,"fish":["fish-1"],"friend":"Monica","hero":"hero-2","instruments":["Piano","Violin"],"integer":7,"name":"Ada","number":1e2,"pet":"pet-1"}`,
		`{"name":"Ada","integer":""}`:      `{"friend":"Monica","instruments":["Guitar"],"integer":42,"name":"Ada","number":3.14,"pet":"pet-1"}`,
		`{"name":"Ada","integer":101}`:     "arguments/integer: maximum",
		`{"name":"Ada","integer":"seven"}`: "arguments/integer: type: integer",
		`{"name":"Ada","integer":1.5}`:     "arguments/integer: type: integer",
		`{}`:                               "arguments: required: name",
		`{"name":"Ada","friend":"Joey"}`:   "arguments/friend: enum",
		`{"name":"Ada","instruments":[]}`:  "arguments/instruments: minItems",
		`{"name":"Ada","name":"Eve"}`:      "not acceptable as JSON",
		`[]`:                               "not acceptable as JSON",
		`{"name":"Ada","instruments":["Guitar","Piano","Violin"]}`:           "arguments/instruments: maxItems",
		`{"name":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`: "not acceptable as JSON",
	} {
		action, content, err := q.Answer(json.RawMessage(form))
		got := string(content)
		if e, ok := errors.AsType[*elicit.InvalidError](err); ok {
			got = e.Reason
		}
		if got != want || err == nil && action != elicit.Accept {
			t.Errorf("%s: %s %q (%v), want %q", form, action, got, err, want)
		}
	}
}

// Who is asked nothing in particular still says yes or no.
func TestAQuestionWithoutFields(t *testing.T) {
	t.Parallel()
	for _, params := range []string{`{"message":"Go on?","requestedSchema":{"type":"object"}}`, `{"message":"Go on?"}`, `{"message":"Go on?","requestedSchema":{"type":"object","properties":{}}}`} {
		q, err := elicit.Parse(json.RawMessage(params), plain)
		if err != nil || len(q.Fields) != 1 || !q.Fields[0].Required {
			t.Fatalf("%s: %+v %v", params, q, err)
		}
		for form, want := range map[string]elicit.Action{`{"confirm":true}`: elicit.Accept, `{"confirm":"true"}`: elicit.Accept, `{"confirm":false}`: elicit.Decline, `{}`: elicit.Decline} {
			if got, _, err := q.Answer(json.RawMessage(form)); err != nil || got != want {
				t.Errorf("%s: %s %v", form, got, err)
			}
		}
	}
}

func TestWhatIsNoQuestion(t *testing.T) {
	t.Parallel()
	for name, params := range map[string]string{
		"no JSON":       `{`,
		"no message":    `{"requestedSchema":{"type":"object"}}`,
		"by URL":        `{"message":"m","mode":"url","url":"https://example.com","elicitationId":"1"}`,
		"message twice": `{"message":"a","message":"b"}`,
		"not an object": `{"message":"m","requestedSchema":{"type":"string"}}`,
		"nested":        `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"object","properties":{}}}}}`,
		"reference":     `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:9/x"}}}}`,
		"free list":     `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}}}}`,
		"same name":     `{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"string"},"A":{"type":"string"}}}}`,
		"too many":      `{"message":"m","requestedSchema":{"type":"object","properties":{` + strings.TrimSuffix(manyProperties(), ",") + `}}}`,
		"too large":     `{"message":"` + strings.Repeat("m", elicit.MaxBytes) + `"}`,
		"bad schema":    `{"message":"m","requestedSchema":{"type":"objekt"}}`,
	} {
		if q, err := elicit.Parse(json.RawMessage(params), plain); err == nil {
			t.Errorf("%s is the question %+v", name, q)
		}
	}
}

func manyProperties() string {
	var b strings.Builder
	for i := range 65 {
		b.WriteString(`"p` + strings.Repeat("x", i) + `":{"type":"string"},`)
	}
	return b.String()
}

// What a person is shown is cleaned, and a credential is cut out of it.
func TestAQuestionIsCleaned(t *testing.T) {
	t.Parallel()
	q, err := elicit.Parse(json.RawMessage(`{"message":"the token s3cr3t","requestedSchema":{"type":"object","properties":{"a":{"type":"string","title":"s3cr3t","description":"s3cr3t"}}}}`),
		func(s string) string { return strings.ReplaceAll(s, "s3cr3t", "[redacted]") })
	if err != nil || q.Prompt != "the token [redacted]" || q.Fields[0].FieldLabel != "[redacted]" || q.Fields[0].FieldDescription != "[redacted]" {
		t.Errorf("%+v %v", q, err)
	}
}

func TestDigestsTellQuestionsApart(t *testing.T) {
	t.Parallel()
	a := elicit.Digest(json.RawMessage(`{"message":"m","requestedSchema":{"type":"object","properties":{}}}`))
	if b := elicit.Digest(json.RawMessage(`{"_meta":{"x":1}, "requestedSchema":{"properties":{},"type":"object"}, "message":"m"}`)); a == "" || a != b {
		t.Errorf("%q %q", a, b)
	}
	for _, other := range []string{`{"message":"n","requestedSchema":{"type":"object","properties":{}}}`, `{"message":"m"}`, `{`, `{"message":"m","requestedSchema":{"a":1,"a":2}}`} {
		if elicit.Digest(json.RawMessage(other)) == a {
			t.Errorf("%s is the same question", other)
		}
	}
}

// A question that is accepted can be asked, and whatever a form holds, what the
// server gets fits what it asked for.
func FuzzQuestions(f *testing.F) {
	f.Add([]byte(everything), []byte(`{"name":"Ada","integer":"7"}`))
	f.Add([]byte(`{"message":"m"}`), []byte(`{"confirm":true}`))
	f.Add([]byte(`{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"number","default":1e3}}}}`), []byte(`{"a":"1e999"}`))
	f.Fuzz(func(t *testing.T, params, form []byte) {
		q, err := elicit.Parse(params, plain)
		if err != nil {
			return
		}
		body, err := event.InterruptBody(event.InterruptRequested{InterruptID: "i", InterruptType: event.InterruptFormInput, AgentID: "a", Prompt: q.Prompt, Fields: q.Fields})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := event.DecodeInterrupt(body, event.Bounds{}); err != nil {
			t.Errorf("%q cannot be asked: %v", params, err)
		}
		action, content, err := q.Answer(form)
		if err == nil && action == elicit.Accept && !json.Valid(content) {
			t.Errorf("%q answers %q with %q", form, params, content)
		}
	})
}
