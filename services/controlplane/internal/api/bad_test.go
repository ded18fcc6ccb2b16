package api_test

import (
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/api"
)

const (
	goodStart = `{"agent_id":"demo","conversation_id":"c1","message":"hi"}`
	goodAGUI  = `{"threadId":"c1","runId":"r1","messages":[{"id":"u1","role":"user","content":"hi"}],"tools":[],"context":[],"state":{},"forwardedProps":{}}`
)

// bad is a request that is refused before anything is done.
type bad struct {
	path, body string
	status     int
	code       fault.Code
	detail     string // begins with
}

func badBodies() map[string]bad {
	const start, agui, cancel, resume = "/api/v1/runs", "/api/v1/agents/demo/agui", "/api/v1/runs/run_x:cancel", "/api/v1/runs/run_x:resume"
	invalid := func(path, body, detail string) bad {
		return bad{path, body, http.StatusBadRequest, fault.InvalidRequest, detail}
	}
	large := func(path, body, detail string) bad {
		return bad{path, body, http.StatusRequestEntityTooLarge, fault.RequestTooLarge, detail}
	}
	list := map[string]bad{}
	for name, path := range map[string]string{"start": start, "agui": agui, "cancel": cancel, "resume": resume} {
		list[name+", not JSON"] = invalid(path, `{"agent_id"`, "body: ")
		list[name+", no object"] = invalid(path, `[]`, "body: ")
		list[name+", more than one value"] = invalid(path, `{} {}`, "body: ")
		list[name+", an unknown field"] = invalid(path, `{"nobody_knows":1}`, "body: /nobody_knows: ")
		list[name+", invalid UTF-8"] = invalid(path, "{\"message\":\"\xff\",\"threadId\":\"\xff\",\"\xff\":1}", "body: ")
		list[name+", too large"] = large(path, `{"message":"`+strings.Repeat("x", api.MaxBodyBytes-13)+`"}`, "body: at most 16777216 bytes")
	}
	with := func(members string) string { return strings.Replace(goodStart, "{", "{"+members+",", 1) }
	for name, b := range map[string]bad{
		"a key twice":              invalid(start, with(`"message":"other"`), "body: /message: "),
		"a key in another case":    invalid(start, with(`"Message":"other"`), "body: /Message: "),
		"a type":                   invalid(start, `{"agent_id":1}`, "body: /agent_id: "),
		"half a surrogate pair":    invalid(start, `{"message":"\ud800"}`, "body: /message: "),
		"NUL":                      invalid(start, `{"message":"\u0000"}`, "body: /message: "),
		"no agent":                 invalid(start, `{"conversation_id":"c1","message":"hi"}`, "agent_id: "),
		"a bad agent":              invalid(start, `{"agent_id":"a/b","conversation_id":"c1","message":"hi"}`, "agent_id: "),
		"no conversation":          invalid(start, `{"agent_id":"demo","message":"hi"}`, "conversation_id: "),
		"no message":               invalid(start, `{"agent_id":"demo","conversation_id":"c1","message":" "}`, "message: "),
		"a long message":           large(start, `{"agent_id":"demo","conversation_id":"c1","message":"`+strings.Repeat("x", 256<<10+1)+`"}`, "message: "),
		"no interrupt":             invalid(resume, `{"revision":1,"dismiss":true}`, "interrupt_id: "),
		"no revision":              invalid(resume, `{"interrupt_id":"i1","dismiss":true}`, "revision: "),
		"a negative revision":      invalid(resume, `{"interrupt_id":"i1","revision":-1,"dismiss":true}`, "body: /revision: "),
		"a form key twice":         invalid(resume, `{"interrupt_id":"i1","revision":1,"form":{"a":1,"A":2}}`, "body: /form/A: "),
		"a bad key":                invalid(start, with(`"idempotency_key":"a b"`), "idempotency_key: "),
		"context that is a list":   invalid(start, with(`"client_context":[]`), "client_context: "),
		"a key twice in context":   invalid(start, with(`"client_context":{"a":1,"A":2}`), "body: /client_context/A: "),
		"long context":             large(start, with(`"client_context":{"a":"`+strings.Repeat("x", 64<<10)+`"}`), "client_context: "),
		"a word for on_disconnect": invalid(start, with(`"on_disconnect":"maybe"`), "on_disconnect: "),
		"many files":               large(start, with(`"files":[`+strings.Repeat(`{"name":"a","mime_type":"a/b","data":"aa=="},`, 16)+`{"name":"a","mime_type":"a/b","data":"aa=="}]`), "files: "),
		"a file without a name":    invalid(start, with(`"files":[{"mime_type":"a/b","data":"aaaa"}]`), "files[0].name: "),
		"a file of no type":        invalid(start, with(`"files":[{"name":"a","mime_type":"text","data":"aaaa"}]`), "files[0].mime_type: "),
		"a file without data":      invalid(start, with(`"files":[{"name":"a","mime_type":"a/b","data":""}]`), "files[0].data: "),
		"a file of no base64":      invalid(start, with(`"files":[{"name":"a","mime_type":"a/b","data":"?"}]`), "body: "),
		"a large file":             large(start, with(`"files":[{"name":"a","mime_type":"a/b","data":"`+strings.Repeat("aaaa", (8<<20)/3+1)+`"}]`), "files[0].data: "),
	} {
		list["start, "+name] = b
	}
	member := func(members string) string { return strings.Replace(goodAGUI, "{", "{"+members+",", 1) }
	for name, b := range map[string]bad{
		"a key twice":           invalid(agui, member(`"runId":"r2"`), "body: /runId: "),
		"a key in another case": invalid(agui, member(`"RUNID":"r2"`), "body: /RUNID: "),
		"a type":                invalid(agui, `{"threadId":1}`, "body: /threadId: "),
		"no new message":        invalid(agui, `{"threadId":"c1","runId":"r1","messages":[]}`, "body: /messages: "),
		"a word for an answer":  invalid(agui, member(`"resume":[{"interruptId":"i","status":"maybe"}]`), "body: /resume/0/status: "),
		"an answer to nothing":  invalid(agui, member(`"resume":[{"status":"resolved"}]`), "body: /resume/0"),
		"answers to two":        invalid(agui, member(`"resume":[{"interruptId":"i","status":"cancelled"},{"interruptId":"j","status":"cancelled"}]`), "body: /resume/1/interruptId: "),
		"a bad agent":           invalid("/api/v1/agents/a%2Fb/agui", goodAGUI, "agent_id: "),
	} {
		list["agui, "+name] = b
	}
	chat := func(members string) string { return strings.Replace(goodChat, "{", "{"+members+",", 1) }
	for name, b := range map[string]bad{
		"start, a protocol":        invalid(chatStart, chat(`"protocol":"canonical"`), "protocol: "),
		"start, a file elsewhere":  invalid(chatStart, chat(`"files":[{"name":"a","mime_type":"a/b","uri":"http://x.test"}]`), "files.uri: "),
		"start, no message":        invalid(chatStart, goodChatCancel, "message: "),
		"invoke, no message":       invalid(chatInvoke, goodChatCancel, "message: "),
		"resume, a protocol":       invalid(chatResume, strings.Replace(goodChatResume, "{", `{"protocol":"x",`, 1), "protocol: "),
		"resume, no interrupt":     invalid(chatResume, goodChatCancel, "interrupt_id: "),
		"resume, no agent":         invalid(chatResume, `{"interrupt_id":"i1","revision":1,"dismiss":true}`, "agent_id: "),
		"resume, a key twice":      invalid(chatResume, strings.Replace(goodChatResume, "{", `{"revision":2,`, 1), "body: /revision: "),
		"cancel, no conversation":  invalid(chatCancel, `{"agent_id":"demo"}`, "conversation_id: "),
		"cancel, an unknown field": invalid(chatCancel, `{"run_id":"x"}`, "body: /run_id: "),
	} {
		list["chat, "+name] = b
	}
	return list
}

// Bad input is refused with a code and the place, nothing is begun by it, and the
// server goes on.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for name, b := range badBodies() {
		t.Run(name, func(t *testing.T) {
			a := f.post(t, b.path, b.body)
			refused(t, a, b.status, b.code, b.detail)
		})
	}
	if n := f.stack.Provider.Made(); n != 0 {
		t.Errorf("%d sandboxes were made", n)
	}
	list, err := f.stack.Writer.Backend().List(t.Context(), "", 10, false)
	if err != nil || len(list) != 0 {
		t.Errorf("bindings %v (%v)", list, err)
	}
	f.ended(t, f.start(t, "hi"))
}

func refused(t *testing.T, a answer, status int, code fault.Code, detail string) {
	t.Helper()
	e := a.fault(t)
	if a.status != status || e.Code != code || !strings.HasPrefix(e.Detail, detail) {
		t.Errorf("%d %s %q; want %d %s %q", a.status, e.Code, e.Detail, status, code, detail)
	}
	if e.IncidentID == "" || e.Message == "" || e.Category == "" {
		t.Errorf("the error is not whole: %s", a.body)
	}
	if got := a.header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %s", got)
	}
}

func TestBadContentTypes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for _, path := range []string{"/api/v1/runs", "/api/v1/agents/demo/agui", "/api/v1/runs/run_x:cancel"} {
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/json; charset"} {
			r := f.request(t, http.MethodPost, path, goodStart)
			r.Header["Content-Type"] = []string{kind}
			if kind == "" {
				r.Header.Del("Content-Type")
			}
			refused(t, f.send(t, r), http.StatusBadRequest, fault.InvalidRequest, "Content-Type: ")
		}
	}
	r := f.request(t, http.MethodPost, "/api/v1/runs", goodStart)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	if a := f.send(t, r); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestBadQueries(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	id := f.start(t, "hi")
	f.ended(t, id)
	run := "/api/v1/runs/" + id
	for path, detail := range map[string]string{
		run + "/events?after=x":                              "after: ",
		run + "/events?after=":                               "after: ",
		run + "/events?after=-1":                             "after: ",
		run + "/events?after=1.5":                            "after: ",
		run + "/events?after=%2B1":                           "after: ",
		run + "/events?after=1&after=2":                      "after: ",
		run + "/events?after=%zz":                            "query: ",
		run + "/events?after=1;limit=2":                      "query: ",
		run + "/events?limit=0":                              "limit: ",
		run + "/events?limit=1001":                           "limit: ",
		run + "/events?limit=x":                              "limit: ",
		run + "/stream?after=x":                              "after: ",
		run + "/stream?protocol=x":                           "protocol: ",
		run + "/stream?protocol=agui&protocol=canonical":     "protocol: ",
		run + "/events?after=99999999999999999999999999":     "after: ",
		run + "/stream?protocol=agui&after=9007199254740992": "after: ",
	} {
		refused(t, f.get(t, path), http.StatusBadRequest, fault.InvalidRequest, detail)
	}
	for _, id := range []string{"x", "-1", "1.5", "9007199254740992", "18446744073709551615", "1,2"} {
		r := f.request(t, http.MethodGet, run+"/stream", "")
		r.Header.Set("Last-Event-ID", id)
		refused(t, f.send(t, r), http.StatusBadRequest, fault.InvalidRequest, "Last-Event-ID: ")
	}
}
