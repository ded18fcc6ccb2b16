package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

const (
	jsonType = "application/json"
	// maxBody is the documented bound of a request's body, in bytes.
	maxBody = 16 << 20
)

// bad is a body that no route takes.
type bad struct {
	name, contentType, body string
	status                  int
	code                    string
}

// badBodies are the documents that are wrong in themselves. valid is one that is
// right; in it the first member is a string.
func badBodies(valid string) []bad {
	invalid := func(name, body string) bad {
		return bad{name, jsonType, body, http.StatusBadRequest, "invalid_request"}
	}
	first, _, _ := strings.Cut(valid[1:], ":") // with its quotes
	return []bad{
		invalid("empty", ""),
		invalid("not JSON", "hello"),
		invalid("half of it", valid[:len(valid)-1]),
		invalid("something after it", valid+"{}"),
		invalid("a list", "["+valid+"]"),
		invalid("null", "null"),
		invalid("an unknown field", strings.Replace(valid, "{", `{"surprise":1,`, 1)),
		invalid("a key twice", strings.Replace(valid, "{", "{"+first+`:"x",`, 1)),
		invalid("a key in two cases", strings.Replace(valid, "{", "{"+strings.ToUpper(first)+`:"x",`, 1)),
		invalid("only a key in another case", strings.Replace(valid, first, strings.ToUpper(first), 1)),
		invalid("a value of another type", strings.Replace(valid, "{"+first+":", "{"+first+`:{},"x":`, 1)),
		invalid("not UTF-8", strings.Replace(valid, `"`+"hello", `"`+"\xff\xfe", 1)),
		invalid("half a surrogate pair", strings.Replace(valid, `"`+"hello", `"\ud800`, 1)),
		invalid("a NUL", strings.Replace(valid, `"`+"hello", `"\u0000`, 1)),
		invalid("too deep", strings.Replace(valid, "{", `{"surprise":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+",", 1)),
		{"another content type", "text/plain", valid, http.StatusBadRequest, "invalid_request"},
		{"no content type", "", valid, http.StatusBadRequest, "invalid_request"},
		{"too large", jsonType, strings.Replace(valid, "hello", strings.Repeat("x", maxBody), 1), http.StatusRequestEntityTooLarge, "request_too_large"},
	}
}

// Whatever is sent to whichever route: the answer is a clear error, nothing has
// happened, the server is the same as before, and it works.
func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	w := theStack(t)
	c := w.talk()
	run := c.tell(t, ">>say here")
	c.ended(t, run)
	control, err := w.Program("controlplane")
	if err != nil {
		t.Fatal(err)
	}
	before := w.allBindings(t)

	w.sendBadBodies(t, c.conversation, run)
	w.sendBadQueries(t, run)
	w.sendNoHTTP(t)

	if now, err := w.Program("controlplane"); err != nil || now.PID != control.PID || !control.Alive() {
		t.Errorf("the control plane was %s and is %s (%v)", control, now, err)
	}
	if after := w.allBindings(t); !slices.Equal(after, before) {
		t.Errorf("the bindings were\n%q and are\n%q", before, after)
	}
	if text := c.tell(t, "What do you remember?").text(t); strings.Count(text, "you said") != 1 {
		t.Errorf("it remembers %q", text)
	}
}

// allBindings tells what is committed of every binding.
func (w *world) allBindings(t *testing.T) (all []string) {
	t.Helper()
	for after := ""; ; {
		page, next, err := w.operator.Bindings(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page {
			all = append(all, fmt.Sprintf("%s epoch %d generation %d revision %d running %v", b.BindingID, b.Epoch, b.Generation, b.DurableRevision, b.Run != nil))
		}
		if after = next; next == "" {
			return all
		}
	}
}

func (w *world) sendBadBodies(t *testing.T, conversation string, run turn) {
	t.Helper()
	start := fmt.Sprintf(`{"agent_id":"%s","conversation_id":"%s","message":"hello"}`, stack.Agent, conversation)
	input := fmt.Sprintf(`{"threadId":"%s","runId":"r-1","messages":[{"id":"m-1","role":"user","content":"hello"}]}`, conversation)
	for _, route := range []struct{ path, valid string }{
		{"/api/v1/runs", start},
		{"/api/v1/agents/" + stack.Agent + "/agui", input},
	} {
		for _, b := range badBodies(route.valid) {
			w.send(t, http.MethodPost, route.path, b)
		}
	}
	for _, b := range append(badStarts(conversation), badInputs(conversation)...) {
		path := "/api/v1/runs"
		if strings.Contains(b.body, "threadId") {
			path = "/api/v1/agents/" + stack.Agent + "/agui"
		}
		w.send(t, http.MethodPost, path, b)
	}
	for _, b := range badBodies(`{"reason":"hello"}`) { // a cancel says nothing, or an empty object
		if b.name == "empty" {
			continue
		}
		w.send(t, http.MethodPost, "/api/v1/runs/"+run.RunID+":cancel", b)
	}
}

// badStarts are right as JSON and wrong as the start of a run.
func badStarts(conversation string) []bad {
	with := func(name, members string) bad {
		return bad{name, jsonType, "{" + members + "}", http.StatusBadRequest, "invalid_request"}
	}
	large := func(name, members string) bad {
		return bad{name, jsonType, "{" + members + "}", http.StatusRequestEntityTooLarge, "request_too_large"}
	}
	agent, conv, hello := `"agent_id":"demo",`, `"conversation_id":"`+conversation+`",`, `"message":"hello"`
	return []bad{
		with("no agent", conv+hello),
		with("no conversation", agent+hello),
		with("no message", agent+strings.TrimSuffix(conv, ",")),
		with("a blank message", agent+conv+`"message":" \n "`),
		large("a message over its bound", agent+conv+`"message":"`+strings.Repeat("x", 256<<10+1)+`"`),
		with("an agent id that is none", `"agent_id":"../demo",`+conv+hello),
		with("an id over its bound", agent+`"conversation_id":"`+strings.Repeat("c", 129)+`",`+hello),
		with("a key that is none", agent+conv+hello+`,"idempotency_key":"a b"`),
		with("a context that is no object", agent+conv+hello+`,"client_context":[1]`),
		with("a context with a key twice", agent+conv+hello+`,"client_context":{"a":1,"a":2}`),
		large("a context over its bound", agent+conv+hello+`,"client_context":{"a":"`+strings.Repeat("x", 64<<10)+`"}`),
		with("a way to end that is none", agent+conv+hello+`,"on_disconnect":"explode"`),
		with("a file without a name", agent+conv+hello+`,"files":[{"name":"","mime_type":"text/plain","data":"aGk="}]`),
		with("a file without content", agent+conv+hello+`,"files":[{"name":"a","mime_type":"text/plain","data":""}]`),
		with("a file that is not base64", agent+conv+hello+`,"files":[{"name":"a","mime_type":"text/plain","data":"%%%"}]`),
		with("a file of no type", agent+conv+hello+`,"files":[{"name":"a","mime_type":"text","data":"aGk="}]`),
		large("too many files", agent+conv+hello+`,"files":[`+strings.Repeat(`{"name":"a","mime_type":"text/plain","data":"aGk="},`, 16)+
			`{"name":"a","mime_type":"text/plain","data":"aGk="}]`),
	}
}

// badInputs are right as JSON and wrong as an AG-UI RunAgentInput.
func badInputs(conversation string) []bad {
	with := func(name, members string) bad {
		return bad{name, jsonType, `{"threadId":"` + conversation + `",` + members + "}", http.StatusBadRequest, "invalid_request"}
	}
	hello := `"messages":[{"id":"m-1","role":"user","content":"hello"}]`
	return []bad{
		with("no run", hello),
		with("no messages", `"runId":"r-1"`),
		with("no message", `"runId":"r-1","messages":[]`),
		with("no message of the user", `"runId":"r-1","messages":[{"id":"m-1","role":"assistant","content":"hello"}]`),
		with("a run id that is none", `"runId":"a b",`+hello),
		{
			"a message over its bound", jsonType,
			`{"threadId":"` + conversation + `","runId":"r-1","messages":[{"id":"m-1","role":"user","content":"` + strings.Repeat("x", 256<<10+1) + `"}]}`,
			http.StatusRequestEntityTooLarge, "request_too_large",
		},
		with("messages that are none", `"runId":"r-1","messages":{}`),
	}
}

func (w *world) sendBadQueries(t *testing.T, run turn) {
	t.Helper()
	invalid := func(method, path string) {
		w.send(t, method, path, bad{path, "", "", http.StatusBadRequest, "invalid_request"})
	}
	nothing := func(method, path string) {
		w.send(t, method, path, bad{method + " " + path, "", "", http.StatusNotFound, "not_found"})
	}
	base := "/api/v1/runs/" + run.RunID
	for _, q := range []string{"after=-1", "after=x", "after=1e3", "after=99999999999999999999", "limit=-1", "limit=x", "limit=1001"} {
		invalid(http.MethodGet, base+"/events?"+q)
	}
	invalid(http.MethodGet, base+"/stream?protocol=morse")
	invalid(http.MethodGet, base+"/stream?after=x")
	for _, path := range []string{
		"/", "/api/v1", "/api/v1/runs", "/api/v1/runs/", base + ":swim", base + "/nothing", "/api/v1/runs/%2e%2e%2fbindings",
		"/api/v1/runs/" + strings.Repeat("r", 129), "/api/v1/runs/%00", "/api/v1/bindings", "/api/v2/runs", "/metrics", "/debug/pprof/",
	} {
		nothing(http.MethodGet, path)
	}
	nothing(http.MethodDelete, base)
	nothing(http.MethodPost, base)
	nothing(http.MethodPost, base+":swim")
	nothing(http.MethodPost, "/api/v1/runs/run_none:cancel")
	nothing(http.MethodPost, "/api/v1/runs/:cancel")

	for _, path := range []string{"/api/v1/bindings?limit=x", "/api/v1/bindings?limit=-1", "/api/v1/bindings?after=hello"} {
		a, err := w.operator.Do(t.Context(), http.MethodGet, path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "operators: "+path, a.Err(), http.StatusBadRequest, "invalid_request")
	}
	for _, path := range []string{"/api/v1/bindings/hello", "/api/v1/bindings/hs_" + strings.Repeat("x", 200), "/api/v1/runs/" + run.RunID, "/"} {
		a, err := w.operator.Do(t.Context(), http.MethodGet, path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "operators: "+path, a.Err(), http.StatusNotFound, "not_found")
	}
	w.sendBadCursor(t, run)
}

// sendBadCursor sends what a browser would not.
func (w *world) sendBadCursor(t *testing.T, run turn) {
	t.Helper()
	for _, cursor := range []string{"-1", "x", "99999999999999999999"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.API+"/api/v1/runs/"+run.RunID+"/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", w.user.Authorization())
		req.Header.Set("Last-Event-ID", cursor)
		res, err := httpClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
		if err := errors.Join(err, res.Body.Close()); err != nil {
			t.Fatal(err)
		}
		refused(t, "Last-Event-ID: "+cursor, apiclient.Answer{Status: res.StatusCode, Body: raw}.Err(), http.StatusBadRequest, "invalid_request")
	}
}

// send sends a bad request and checks that it is refused as it should be.
func (w *world) send(t *testing.T, method, path string, b bad) {
	t.Helper()
	var body io.Reader
	if b.body != "" || b.contentType != "" {
		body = strings.NewReader(b.body)
	}
	a, err := w.user.Do(t.Context(), method, path, b.contentType, body)
	what := fmt.Sprintf("%s %.60s: %s", method, path, b.name)
	if err != nil {
		t.Errorf("%s: no answer: %v", what, err)
		return
	}
	refused(t, what, a.Err(), b.status, b.code)
	if kind := a.Header.Get("Content-Type"); kind != jsonType {
		t.Errorf("%s: Content-Type %q", what, kind)
	}
	if strings.Contains(string(a.Body), "xxxxxxxx") || strings.Contains(string(a.Body), "surprise\":") {
		t.Errorf("%s: the answer repeats what was sent: %.300s", what, a.Body)
	}
}

// sendNoHTTP sends bytes that are no request.
func (w *world) sendNoHTTP(t *testing.T) {
	t.Helper()
	noise := make([]byte, 4<<10)
	_, _ = rand.Read(noise) // it never fails
	for _, text := range []string{
		"hello\r\n\r\n",
		"GET / HTTP/9.9\r\n\r\n",
		"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nContent-Length: 20\r\n\r\n",
		"POST /api/v1/runs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"GET /" + strings.Repeat("x", 2<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nhello",
		string(noise) + "\r\n\r\n",
	} {
		if err := w.raw(t.Context(), text); err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// raw sends bytes and waits until the server has closed the connection.
func (w *world) raw(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, conditionTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(w.API, "http://"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the server has
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, _ = io.WriteString(conn, text) // the server may have heard enough
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // or may be gone already
	}
	_, _ = io.Copy(io.Discard, conn) // an answer, a reset or nothing at all
	return ctx.Err()
}
