package rpc

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc/rpctest"
)

const plainStart = `{
	"envelope": {"protocol_version":1,"binding_id":"hs_the_binding_under_test","epoch":1,"lease_generation":2,"run_id":"run_under_test",
		"request_id":"r","idempotency_key":"k","deadline":"2099-01-01T00:00:00Z"},
	"input": {"conversation_id":"conversation-1","message":"hi","files":[{"handle":"h-1","size":"3"}],"client_context":{"page":{"Title":"x","title":"y"}}}
}`

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
	text, err := toJSON(&got) // with the context as base64
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
	h := httpWire{c.client}
	for _, path := range []string{"bind", "runs:start", "runs:resume", "runs:cancel", "shutdown"} {
		for _, body := range []string{``, `{`, `{"extra":1}`, `{"envelope":{"protocol_version":2}}`, `{"envelope":1}`} {
			res, err := h.send(t.Context(), http.MethodPost, path, []byte(body)) //nolint:bodyclose // there is none
			if code := fault.CodeOf(err); res != nil || code != fault.InvalidRequest && code != fault.ProtocolUnsupported {
				t.Errorf("%s %s: %v", path, body, err)
			}
		}
		if path != "bind" {
			_, err := h.send(t.Context(), http.MethodPost, path, bytes.Repeat([]byte(" "), 2<<20)) //nolint:bodyclose // there is none
			wantCode(t, err, fault.RequestTooLarge)
		}
	}
	_, err := h.send(t.Context(), http.MethodGet, "interrupt", nil) //nolint:bodyclose // there is none
	wantCode(t, err, fault.InvalidRequest)
	_, err = h.send(t.Context(), http.MethodGet, "interrupt", nil, "Cofferdam-Envelope", "%%%") //nolint:bodyclose // there is none
	wantCode(t, err, fault.InvalidRequest)
	for _, path := range []string{"", "runs", "../internal/v1/ready2", "runs:START"} {
		if res, err := h.send(t.Context(), http.MethodPost, path, nil); err == nil { //nolint:bodyclose // an error has none
			t.Errorf("%s was answered with %d", path, res.StatusCode)
		}
	}
	if c.adapter.streams.Load() != 0 || !c.Ready(t.Context()).Ready {
		t.Error("something happened")
	}
	c.read(t, startRequest(c.stand.Envelope(), "hi"))
}

// FuzzDecodeBind and FuzzDecodeStart: no body panics, and what is taken is the
// same when it is sent again.
func FuzzDecodeBind(f *testing.F) {
	text, err := toJSON(bindRequest(rpctestEnvelope()))
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

func fuzzDecode(t *testing.T, body []byte, m, again proto.Message) {
	t.Helper()
	if err := decode(body, 1<<20, m); err != nil {
		if fault.CodeOf(err) != fault.InvalidRequest && fault.CodeOf(err) != fault.RequestTooLarge {
			t.Fatalf("%s: %v", body, err)
		}
		return
	}
	text, err := toJSON(m)
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
