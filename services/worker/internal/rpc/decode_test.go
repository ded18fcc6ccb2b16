package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/session"
	"cofferdam.dev/services/worker/internal/workerclient"
)

const plainStart = `{
	"envelope": {"protocol_version":1,"binding_id":"hs_the_binding_under_test","epoch":1,"lease_generation":2,"run_id":"run_under_test",
		"request_id":"r","idempotency_key":"k","deadline":"2099-01-01T00:00:00Z"},
	"input": {"conversation_id":"conversation-1","message":"hi","files":[{"handle":"h-1","size":"3"}],"client_context":{"page":{"Title":"x","title":"y"}}}
}`

// plainResume has every part that is JSON itself as that JSON.
const plainResume = `{
	"envelope": {"protocol_version":1,"binding_id":"hs_the_binding_under_test","epoch":1,"lease_generation":2,"run_id":"run_under_test",
		"request_id":"r","idempotency_key":"k","deadline":"2099-01-01T00:00:00Z"},
	"conversation_id":"conversation-1","interrupt_id":"int-1","interrupt_revision":1,"carried_calls":["parent"],
	"interrupt":{"interrupt_id":"int-1","interrupt_type":"tool_approval","agent_id":"agent","tool_approvals":[
		{"tool_call_id":"c1","tool_name":"fs.read","tool_args":{"path":"a"},"allowed_decisions":["approve","edit"]}]},
	"decision":{"tools":[{"tool_call_id":"c1","decision":"edit","arguments":{"path":"b"}}]},
	"uploads":[{"handle":"h-1","max_bytes":"5"}],"tokens":[{"audience":"thread-state","token":"x"}]
}`

func TestDecodeResume(t *testing.T) {
	var req workerv1.ResumeRunRequest
	must(t, decode([]byte(plainResume), maxBindBytes, &req))
	d, err := decisionOf(&req, rpctestEnvelope())
	must(t, err)
	if len(d.Tools) != 1 || len(d.Uploads) != 1 || len(d.Carried) != 1 || len(d.Interrupt.ToolApprovals) != 1 {
		t.Fatalf("got %+v", d)
	}
	if d.Revision != 1 || d.Tools[0].Decision != event.DecisionEdit || string(d.Tools[0].Arguments) != `{"path":"b"}` || d.Uploads[0].MaxBytes != 5 ||
		d.Interrupt.ToolApprovals[0].ToolArgs != `{"path":"a"}` || d.RunID != "run" {
		t.Errorf("got %+v", d)
	}
}

func TestDecode(t *testing.T) {
	var got workerv1.StartRunRequest
	must(t, decode([]byte(plainStart), maxBindBytes, &got))
	in := got.GetInput()
	if in.GetMessage() != "hi" || in.GetFiles()[0].GetSize() != 3 || got.GetEnvelope().GetLeaseGeneration() != 2 {
		t.Errorf("got %v", &got)
	}
	if string(in.GetClientContext()) != `{"page":{"Title":"x","title":"y"}}` {
		t.Errorf("client_context: %s", in.GetClientContext())
	}
	var again workerv1.StartRunRequest
	text, err := workerclient.ToJSON(&got) // with the context as base64
	must(t, err)
	must(t, decode(text, maxBindBytes, &again))
	if !proto.Equal(&got, &again) {
		t.Errorf("%v became %v", &got, &again)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":                  ``,
		"no JSON":                  `{`,
		"a list":                   `[]`,
		"null":                     `null`,
		"a text":                   `"x"`,
		"text after it":            `{} {}`,
		"an unknown field":         `{"envelope":{},"extra":1}`,
		"an unknown field in it":   `{"input":{"messages":"x"}}`,
		"in a list":                `{"input":{"files":[{"path":"x"}]}}`,
		"another spelling":         `{"input":{"conversationId":"x"}}`,
		"another case":             `{"Input":{}}`,
		"a doubled key":            `{"input":{"message":"a","message":"b"}}`,
		"a doubled key in a value": `{"input":{"client_context":{"a":1,"a":2}}}`,
		"both spellings":           `{"input":{"conversation_id":"x","conversationId":"y"}}`,
		"an extension":             `{"[harness.x]":1}`,
		"a type that is another":   `{"input":{"message":1}}`,
		"a list that is none":      `{"input":{"files":{}}}`,
		"an object that is none":   `{"input":"x"}`,
		"an entry that is none":    `{"input":{"files":["x"]}}`,
		"null in a field":          `{"input":null}`,
		"not UTF-8":                "{\"input\":{\"message\":\"\xff\"}}",
		"half a pair":              `{"input":{"message":"\ud83d"}}`,
		"no base64":                `{"input":{"client_context":"%"}}`,
		"a time that is none":      `{"envelope":{"deadline":"soon"}}`,
		"a number out of range":    `{"envelope":{"epoch":-1}}`,
		"too deep":                 strings.Repeat(`{"input":`, 100) + `{}` + strings.Repeat(`}`, 100),
	} {
		t.Run(name, func(t *testing.T) {
			err := decode([]byte(body), maxBindBytes, &workerv1.StartRunRequest{})
			wantCode(t, err, fault.InvalidRequest)
			if f := fault.From(err, ""); f != nil && !strings.HasPrefix(f.Detail(), "body") {
				t.Errorf("the detail is %q", f.Detail())
			}
		})
	}
	wantCode(t, decode(bytes.Repeat([]byte(" "), 101), 100, &workerv1.StartRunRequest{}), fault.RequestTooLarge)
}

// Every route answers bad bodies with a code, and stays up.
func TestBadBodies(t *testing.T) {
	c := bound(t, rpctest.NewStand(t)).dial(t, newHTTPWire)
	h := workerclient.Routes{Client: c.client}
	for _, path := range []string{"bind", "runs:start", "runs:resume", "runs:cancel", "shutdown"} {
		for _, body := range []string{``, `{`, `{"extra":1}`, `{"envelope":{"protocol_version":2}}`, `{"envelope":1}`} {
			res, err := h.Send(t.Context(), http.MethodPost, path, []byte(body)) //nolint:bodyclose // there is none
			if code := fault.CodeOf(err); res != nil || code != fault.InvalidRequest && code != fault.ProtocolUnsupported {
				t.Errorf("%s %s: %v", path, body, err)
			}
		}
		if path != "bind" {
			_, err := h.Send(t.Context(), http.MethodPost, path, bytes.Repeat([]byte(" "), 2<<20)) //nolint:bodyclose // there is none
			wantCode(t, err, fault.RequestTooLarge)
		}
	}
	_, err := h.Send(t.Context(), http.MethodGet, "interrupt", nil) //nolint:bodyclose // there is none
	wantCode(t, err, fault.InvalidRequest)
	_, err = h.Send(t.Context(), http.MethodGet, "interrupt", nil, "Cofferdam-Envelope", "%%%") //nolint:bodyclose // there is none
	wantCode(t, err, fault.InvalidRequest)
	for _, path := range []string{"", "runs", "../internal/v1/ready2", "runs:START"} {
		if res, err := h.Send(t.Context(), http.MethodPost, path, nil); err == nil { //nolint:bodyclose // an error has none
			t.Errorf("%s was answered with %d", path, res.StatusCode)
		}
	}
	if c.adapter.streams.Load() != 0 || !c.Ready(t.Context()).Ready {
		t.Error("something happened")
	}
	c.read(t, startRequest(c.stand.Envelope(), "hi"))
}

// FuzzDecodeBind, FuzzDecodeStart and FuzzDecodeResume: no body panics, and what
// is taken is the same when it is sent again.
func FuzzDecodeBind(f *testing.F) {
	text, err := workerclient.ToJSON(bindRequest(rpctestEnvelope()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"tools":[{"tool_id":"a.b","input_schema":{"a":[1,{}]}}],"limits":{"shutdown_grace":"1.5s"},"user_context":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) { fuzzDecode(t, body, &workerv1.BindRequest{}, &workerv1.BindRequest{}) })
}

func FuzzDecodeStart(f *testing.F) {
	f.Add([]byte(plainStart))
	f.Add([]byte(`{"tokens":[{"audience":"a","token":"b"}],"input":{"files":[{}],"client_context":"e30="}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzDecode(t, body, &workerv1.StartRunRequest{}, &workerv1.StartRunRequest{})
	})
}

func FuzzDecodeResume(f *testing.F) {
	f.Add([]byte(plainResume))
	f.Add([]byte(`{"interrupt":"e30=","decision":{"tools":[{"tool_call_id":"c","decision":"edit","arguments":{"a":[1,{}]}}],"dismiss":true},"carried_calls":["p"]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzDecode(t, body, &workerv1.ResumeRunRequest{}, &workerv1.ResumeRunRequest{})
	})
}

// FuzzDecision: no interrupt and no decision panic on their way to the harness,
// and the worker takes the next run afterwards.
func FuzzDecision(f *testing.F) {
	body, err := event.InterruptBody(askForm("int-1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body, []byte(`{"city":"Ulm"}`), "c1", "approve", []byte(nil), "p")
	f.Add([]byte(`{"interrupt_id":"int-1","interrupt_type":"tool_approval","agent_id":"a","tool_approvals":[{"tool_call_id":"c1","tool_name":"fs.read","tool_args":{},"allowed_decisions":["edit"]}]}`),
		[]byte(nil), "c1", "edit", []byte(`{"path":"x"}`), "p")
	f.Fuzz(func(t *testing.T, interrupt, form []byte, call, decision string, arguments []byte, carried string) {
		req := &workerv1.ResumeRunRequest{
			InterruptId: "int-1", ConversationId: conversation, Interrupt: interrupt, CarriedCalls: []string{carried},
			Decision: &workerv1.ResumeDecision{Form: form},
		}
		if len(form) == 0 {
			req.Decision.Tools = []*workerv1.ToolDecision{{ToolCallId: call, Decision: decision, Arguments: arguments}}
		}
		env := rpctestEnvelope()
		d, err := decisionOf(req, env)
		if err != nil {
			if !fault.Is(err, fault.InvalidRequest) {
				t.Fatal(err)
			}
			return
		}
		w := session.New(session.Config{Adapter: &scripted{script: says("x")}, ImageDigest: digest, BootNonce: nonce, Logger: slog.New(slog.DiscardHandler)})
		defer func() { must(t, w.Shutdown(context.WithoutCancel(t.Context()))) }()
		must(t, w.Bind(t.Context(), session.Bind{
			Envelope: env, ConversationID: conversation, Tokens: []session.Token{{}},
			Construction: harness.Construction{Tools: []harness.Tool{{ID: "fs.read", InputSchema: []byte(`{"type":"object","required":["path"]}`)}}},
			Expected:     session.Info{HarnessID: "scripted", AdapterVersion: "1.0.0", ImageDigest: digest, BootNonce: nonce},
		}, func() (session.Connector, error) { return nowhere{}, nil }))
		r, err := w.Resume(t.Context(), env, d, nil)
		if err != nil {
			if !fault.Is(err, fault.InvalidRequest) && !fault.Is(err, fault.ToolArgumentsInvalid) {
				t.Fatal(err)
			}
			return
		}
		for err == nil {
			_, err = r.Next(t.Context())
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}

func fuzzDecode(t *testing.T, body []byte, m, again proto.Message) {
	t.Helper()
	if err := decode(body, 1<<20, m); err != nil {
		if fault.CodeOf(err) != fault.InvalidRequest && fault.CodeOf(err) != fault.RequestTooLarge {
			t.Fatalf("%s: %v", body, err)
		}
		return
	}
	text, err := workerclient.ToJSON(m)
	must(t, err)
	must(t, decode(text, maxBindBytes, again))
	if !proto.Equal(m, again) {
		t.Fatalf("%s became %s", body, text)
	}
}

// rpctestEnvelope is right for a binding, where no Stand is needed.
func rpctestEnvelope() fence.Envelope {
	return fence.Envelope{
		BindingID: rpctest.BindingID, Epoch: 1, Generation: 2, RunID: "run", RequestID: "r", IdempotencyKey: "k",
		Deadline: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}
