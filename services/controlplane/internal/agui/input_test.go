package agui_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agui"
)

// withInput is a RunAgentInput with members put in front of its messages.
func withInput(members, content string) string {
	return `{"threadId":"t","runId":"r",` + members + `"messages":[{"id":"1","role":"user","content":` + content + `}]}`
}

func TestInputsThatAreTaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input            string
		message, context string
		skipped          int
	}{
		"the least":                 {withInput(``, `"hi"`), "hi", ``, 0},
		"text parts":                {withInput(``, `[{"type":"text","text":"a ","id":"1","metadata":{"x":1}},{"type":"text","text":"b"}]`), "a b", ``, 0},
		"parts that are no text":    {withInput(``, `[{"type":"image","source":{"type":"data","value":"x","mimeType":"image/png"}},{"type":"text","text":"a"}]`), "a", ``, 1},
		"nothing in optional lists": {withInput(`"tools":[],"context":[],"resume":[],"forwardedProps":{ },"state":{},`, `"hi"`), "hi", ``, 0},
		"null for what is not there": {
			withInput(`"tools":null,"context":null,"resume":null,"forwardedProps":null,"state":null,"parentRunId":null,"protocolVersion":null,`, `"hi"`), "hi", ``, 0,
		},
		"a later minor version": {withInput(`"protocolVersion":"1.1",`, `"hi"`), "hi", ``, 0},
		"everything": {
			withInput(`"protocolVersion":"1.0","parentRunId":"p","state":{"n":12345678901234567890, "z":null},"context":[{"description":"d","value":"v"}],"forwardedProps":[1],`, `"hi"`), "hi",
			`{"context":[{"description":"d","value":"v"}],"state":{"n":12345678901234567890,"z":null},"forwardedProps":[1]}`, 0,
		},
		"a history of all roles": {`{"threadId":"t","runId":"r","messages":[{"id":"1","role":"system","content":"s"},{"id":"2","role":"assistant","toolCalls":[]},` +
			`{"id":"3","role":"tool","toolCallId":"x","content":[]},{"id":"4","role":"reasoning","content":"","new":true},` +
			`{"id":"5","role":"user","content":"now","name":"n","metadata":{},"encryptedValue":"e","subagentRunId":"s"}]}`, "now", ``, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, err := agui.ParseInput([]byte(c.input))
			if err != nil {
				t.Fatal(err)
			}
			if in.ThreadID != "t" || in.RunID != "r" || in.Message != c.message || in.Skipped != c.skipped || string(in.Context) != c.context {
				t.Fatalf("%+v with context %s", in, in.Context)
			}
		})
	}
}

func TestInputsThatAreRefused(t *testing.T) {
	t.Parallel()
	last := func(m string) string {
		return `{"threadId":"t","runId":"r","messages":[{"id":"0","role":"user","content":"x"},` + m + `]}`
	}
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for name, c := range map[string]struct {
		input string
		code  fault.Code
		at    string
	}{
		"nothing":                        {``, fault.InvalidRequest, ``},
		"not JSON":                       {`{`, fault.InvalidRequest, ``},
		"no object":                      {`[]`, fault.InvalidRequest, ``},
		"two values":                     {withInput(``, `"hi"`) + `{}`, fault.InvalidRequest, ``},
		"invalid UTF-8":                  {withInput(``, "\"\xff\""), fault.InvalidRequest, `/messages/0/content`},
		"half a surrogate pair":          {withInput(``, `"\ud800"`), fault.InvalidRequest, `/messages/0/content`},
		"NUL":                            {withInput(``, `"\u0000"`), fault.InvalidRequest, `/messages/0/content`},
		"too deep":                       {withInput(`"state":`+deep+`,`, `"hi"`), fault.InvalidRequest, `/state` + strings.Repeat("/0", 31)},
		"a key twice":                    {withInput(`"runId":"other",`, `"hi"`), fault.InvalidRequest, `/runId`},
		"a key in another case":          {withInput(`"RunId":"other",`, `"hi"`), fault.InvalidRequest, `/RunId`},
		"a key twice in the state":       {withInput(`"state":{"a":1,"a":2},`, `"hi"`), fault.InvalidRequest, `/state/a`},
		"a key twice in another case":    {withInput(`"state":{"a":1,"A":2},`, `"hi"`), fault.InvalidRequest, `/state/A`},
		"a key twice in a message":       {last(`{"id":"1","role":"user","role":"system","content":"x"}`), fault.InvalidRequest, `/messages/1/role`},
		"an unknown field":               {withInput(`"x":1,`, `"hi"`), fault.InvalidRequest, `/x`},
		"no thread":                      {`{"runId":"r","messages":[]}`, fault.InvalidRequest, `/threadId`},
		"no run":                         {`{"threadId":"t","messages":[]}`, fault.InvalidRequest, `/runId`},
		"no messages":                    {`{"threadId":"t","runId":"r"}`, fault.InvalidRequest, `/messages`},
		"messages of another type":       {`{"threadId":"t","runId":"r","messages":{}}`, fault.InvalidRequest, `/messages`},
		"an empty list of messages":      {`{"threadId":"t","runId":"r","messages":[]}`, fault.InvalidRequest, `/messages`},
		"a thread with a space":          {`{"threadId":"t t","runId":"r","messages":[]}`, fault.InvalidRequest, `/threadId`},
		"a thread with a number":         {`{"threadId":1,"runId":"r","messages":[]}`, fault.InvalidRequest, `/threadId`},
		"a run that is too long":         {`{"threadId":"t","runId":"` + strings.Repeat("r", 129) + `","messages":[]}`, fault.InvalidRequest, `/runId`},
		"another version":                {withInput(`"protocolVersion":"2.0",`, `"hi"`), fault.ProtocolUnsupported, `/protocolVersion`},
		"a tool of the client":           {withInput(`"tools":[{"name":"a","description":"b"}],`, `"hi"`), fault.NotImplemented, `/tools`},
		"context that is no list":        {withInput(`"context":{},`, `"hi"`), fault.InvalidRequest, `/context`},
		"context without a value":        {withInput(`"context":[{"description":"d"}],`, `"hi"`), fault.InvalidRequest, `/context/0/value`},
		"context with more":              {withInput(`"context":[{"description":"d","value":"v","x":1}],`, `"hi"`), fault.InvalidRequest, `/context/0/x`},
		"too much state":                 {withInput(`"state":"`+strings.Repeat("s", agui.MaxContextBytes)+`",`, `"hi"`), fault.RequestTooLarge, ``},
		"an assistant's message last":    {last(`{"id":"1","role":"assistant","content":"x"}`), fault.InvalidRequest, `/messages/1/role`},
		"a tool's message last":          {last(`{"id":"1","role":"tool","toolCallId":"c","content":"x"}`), fault.InvalidRequest, `/messages/1/role`},
		"a role that is no string":       {last(`{"id":"1","role":7,"content":"x"}`), fault.InvalidRequest, `/messages/1`},
		"a message that is no object":    {last(`"x"`), fault.InvalidRequest, `/messages/1`},
		"a message without an id":        {last(`{"role":"user","content":"x"}`), fault.InvalidRequest, `/messages/1`},
		"an old message without a role":  {`{"threadId":"t","runId":"r","messages":[{"id":"1"},{"id":"2","role":"user","content":"x"}]}`, fault.InvalidRequest, `/messages/0`},
		"a message without content":      {last(`{"id":"1","role":"user"}`), fault.InvalidRequest, `/messages/1/content`},
		"a message with an unknown key":  {last(`{"id":"1","role":"user","content":"x","x":1}`), fault.InvalidRequest, `/messages/1/x`},
		"content of another type":        {withInput(``, `{}`), fault.InvalidRequest, `/messages/0/content`},
		"content that is null":           {withInput(``, `null`), fault.InvalidRequest, `/messages/0/content`},
		"no text":                        {withInput(``, `""`), fault.InvalidRequest, `/messages/0/content`},
		"only space":                     {withInput(``, `" \n"`), fault.InvalidRequest, `/messages/0/content`},
		"no parts":                       {withInput(``, `[]`), fault.InvalidRequest, `/messages/0/content`},
		"only an image":                  {withInput(``, `[{"type":"image","source":{}}]`), fault.InvalidRequest, `/messages/0/content`},
		"a part of an unknown type":      {withInput(``, `[{"type":"hologram"}]`), fault.InvalidRequest, `/messages/0/content/0/type`},
		"a part that is a string":        {withInput(``, `["x"]`), fault.InvalidRequest, `/messages/0/content/0/type`},
		"a text part without text":       {withInput(``, `[{"type":"text"}]`), fault.InvalidRequest, `/messages/0/content/0/text`},
		"a text part with more":          {withInput(``, `[{"type":"text","text":"a","x":1}]`), fault.InvalidRequest, `/messages/0/content/0/x`},
		"text that is too long":          {withInput(``, `"`+strings.Repeat("x", agui.MaxMessageBytes+1)+`"`), fault.RequestTooLarge, `/messages/0/content`},
		"text that is too long in parts": {withInput(``, `[`+strings.Repeat(`{"type":"text","text":"`+strings.Repeat("x", 64<<10)+`"},`, 4)+`{"type":"text","text":"x"}]`), fault.RequestTooLarge, `/messages/0/content`},
		"an input that is too long":      {withInput(``, `"`+strings.Repeat("x", agui.MaxInputBytes)+`"`), fault.RequestTooLarge, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := agui.ParseInput([]byte(c.input))
			f := fault.From(err, "test")
			if f == nil || f.Code() != c.code {
				t.Fatalf("%v, not %s", err, c.code)
			}
			want := "body: "
			if c.at != "" {
				want += c.at + ": "
			}
			if rest, ok := strings.CutPrefix(f.Detail(), want); !ok || rest == "" || strings.HasPrefix(rest, "/") {
				t.Errorf("the detail is %q, and not at %q", f.Detail(), c.at)
			}
		})
	}
}

// What the real client sends when it is given nothing but a message; tests/agui
// compares the file with what the client sends now.
func TestTheRealClientsInputIsTaken(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/httpagent.json")
	if err != nil {
		t.Fatal(err)
	}
	in, err := agui.ParseInput(raw)
	if err != nil || in.Message != "hi" || in.Context != nil {
		t.Fatalf("%+v, %v", in, err)
	}
}

// FuzzParseInput: no input panics, and what is taken keeps its bounds.
func FuzzParseInput(f *testing.F) {
	for _, seed := range []string{
		withInput(`"state":{"a":1},"context":[{"description":"d","value":"v"}],"forwardedProps":1,"tools":[],`, `"hi"`),
		withInput(``, `[{"type":"text","text":"a"},{"type":"image"}]`), withInput(`"resume":[1],`, `null`), `{"messages":[{}]}`, `[`, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in, err := agui.ParseInput(raw)
		if err != nil {
			if f := fault.From(err, "test"); f.Code() == fault.Internal || !strings.HasPrefix(f.Detail(), "body: ") || !utf8.ValidString(f.Detail()) {
				t.Fatalf("%v", err)
			}
			return
		}
		var object map[string]any
		switch {
		case !event.ValidID(in.ThreadID), !event.ValidID(in.RunID):
			t.Fatalf("ids %q, %q", in.ThreadID, in.RunID)
		case strings.TrimSpace(in.Message) == "", len(in.Message) > agui.MaxMessageBytes, !utf8.ValidString(in.Message):
			t.Fatalf("message %q", in.Message)
		case in.Context != nil && (len(in.Context) > agui.MaxContextBytes || json.Unmarshal(in.Context, &object) != nil):
			t.Fatalf("context %q", in.Context)
		}
		run := stamped(runID, root(event.InterruptRequested{
			InterruptID: "interrupt-1", InterruptType: event.InterruptFormInput, AgentID: "a", Prompt: "?", Fields: []event.FormField{{FieldName: "f", FieldType: "text"}},
		}), waits(event.InterruptedForHumanInput))
		for _, frame := range encode(t, agui.NewEncoder(in.ThreadID, in.RunID, agui.Echo(in)), run...) {
			if !json.Valid(frame) || strings.ContainsAny(string(frame), "\r\n") {
				t.Fatalf("frame %q", frame)
			}
		}
	})
}
