package proxy_test

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// seen is a request as the upstream got it.
type seen struct {
	path   string
	header http.Header
	body   map[string]any
}

func TestUpstreamSeesKeyAndNothingOfTheCaller(t *testing.T) {
	t.Parallel()
	got := make(chan seen, 1)
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		s := seen{path: req.URL.RequestURI(), header: req.Header.Clone()}
		if err := json.NewDecoder(req.Body).Decode(&s.body); err != nil {
			t.Error(err)
		}
		got <- s
		events(sayHello, sayStop, "[DONE]")(w, req)
	}, options{model: "upstream-model-1"})
	answer := r.post(t.Context(), t, `{"model":"main","stream":true,"messages":[{"role":"user","content":"<hi> & \u00fc"}],"temperature":0.5,"seed":12345678901234567890}`,
		"Cofferdam-Envelope", "ZW52", "Cookie", "a=b", "X-Api-Key", "caller", "Traceparent", "00-1-2-01",
		"Proxy-Authorization", "Basic eA==", "Forwarded", "for=1.2.3.4", "X-Forwarded-For", "1.2.3.4", "Openai-Organization", "org", "Te", "trailers")
	if answer.status != http.StatusOK || answer.err != nil {
		t.Fatalf("got %+v", answer)
	}
	s := <-got
	want := http.Header{
		"Accept": {"text/event-stream"}, "Authorization": {"Bearer " + keyCanary}, "Content-Type": {"application/json"},
		"User-Agent": {"cofferdam-modelproxy"},
	}
	s.header.Del("Content-Length")
	if !reflect.DeepEqual(s.header, want) {
		t.Errorf("the upstream saw the header %v, want %v", s.header, want)
	}
	if s.path != "/v1/chat/completions" || s.body["model"] != "upstream-model-1" || s.body["temperature"] != 0.5 {
		t.Errorf("the upstream saw %s %v", s.path, s.body)
	}
	r.clean(t, answer)
}

func TestQueryAndOtherRoutesStayHere(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, options{})
	for _, tt := range []struct{ method, path string }{
		{http.MethodGet, "/v1/chat/completions"},
		{http.MethodPost, "/v1/models"},
		{http.MethodPost, "/v1/chat/completions/"},
		{http.MethodPost, "/v1/responses"},
		{http.MethodPost, "/v1/chat/completions/../../admin"},
		{http.MethodConnect, "/v1/chat/completions"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, r.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Path = tt.path
		res, err := r.client.Do(req)
		if err != nil {
			t.Errorf("%s %s: %v", tt.method, tt.path, err)
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("%s %s: %d", tt.method, tt.path, res.StatusCode)
		}
	}
}

func TestAnswerHasOnlyOurHeaders(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"stream": ask, "whole": askWhole} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				h := w.Header()
				h.Set("Set-Cookie", "session="+textCanary)
				h.Set("X-Request-Id", textCanary)
				h.Set("Openai-Organization", textCanary)
				h.Set("Access-Control-Allow-Origin", "*")
				if name == "stream" {
					events(sayHello, sayStop, "[DONE]")(w, req)
					return
				}
				h.Set("Content-Type", "application/json; charset=utf-8")
				_, _ = io.WriteString(w, whole)
			}, options{})
			got := r.post(t.Context(), t, body)
			names := slices.Sorted(maps.Keys(got.header))
			names = slices.DeleteFunc(names, func(n string) bool { return n == "Date" || n == "Content-Length" })
			if want := []string{"Cache-Control", "Content-Type", "X-Content-Type-Options"}; got.status != http.StatusOK || !slices.Equal(names, want) {
				t.Errorf("%d %v, want %v", got.status, names, want)
			}
			r.clean(t, got)
		})
	}
}

func TestEventsArriveOneByOne(t *testing.T) {
	t.Parallel()
	next := make(chan struct{}, 1)
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, d := range []string{sayHello, sayStop, "[DONE]"} {
			select {
			case <-next:
			case <-req.Context().Done():
				return
			}
			_, _ = io.WriteString(w, "event: provider\r\nid: 7\r\nretry: 1\r\ndata: "+d+"\r\n\r\n")
			_ = http.NewResponseController(w).Flush()
		}
	}, options{})
	// The answer begins with its first event.
	next <- struct{}{}
	res := r.open(t.Context(), t, ask)
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for i, want := range []string{sayHello, sayStop, "[DONE]"} {
		if i > 0 {
			next <- struct{}{} // only once the one before was read
		}
		if !lines.Scan() || lines.Text() != "data: "+want || !lines.Scan() || lines.Text() != "" {
			t.Fatalf("read %q (%v), want %q", lines.Text(), lines.Err(), want)
		}
	}
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the terminal: %q, %v", lines.Text(), lines.Err())
	}
}

func TestCommentsPassWithoutTheirText(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": "+textCanary+"\n\ndata: "+sayHello+"\n\n: "+textCanary+"\n\ndata: "+sayStop+"\n\ndata: [DONE]\n\ndata: "+textCanary+"\n\n")
	}, options{})
	got := r.post(t.Context(), t, ask)
	if want := "data: " + sayHello + "\n\n:\n\ndata: " + sayStop + "\n\ndata: [DONE]\n\n"; got.body != want || got.err != nil {
		t.Errorf("got %q (%v), want %q", got.body, got.err, want)
	}
	r.clean(t, got)
}

func TestWholeAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Accept") != "application/json" {
			t.Errorf("Accept %q", req.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, whole)
	}, options{})
	if got := r.post(t.Context(), t, askWhole); got.status != http.StatusOK || got.body != whole || got.err != nil {
		t.Errorf("got %+v", got)
	}
	r.logged(t, `"msg":"model call finished","model_alias":"main","upstream_status":200`)
}

func TestTLSUpstream(t *testing.T) {
	t.Parallel()
	up := httptest.NewUnstartedServer(events(sayHello, sayStop, "[DONE]"))
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.Close)
	trusted := newRig(t, nil, options{base: up.URL, ca: caFile(t, up)})
	if got := trusted.post(t.Context(), t, ask); got.status != http.StatusOK || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
		t.Errorf("got %+v", got)
	}
	unknown := newRig(t, nil, options{base: up.URL})
	unknown.fails(t, unknown.post(t.Context(), t, ask), http.StatusServiceUnavailable, "model_unavailable")
	unknown.logged(t, `"reason":"upstream_tls"`)
}

func TestKeyIsReadForEachCall(t *testing.T) {
	t.Parallel()
	keys := make(chan string, 1)
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		keys <- req.Header.Get("Authorization")
		events(sayHello, sayStop, "[DONE]")(w, req)
	}, options{})
	for _, key := range []string{"first-key-0123456789", "other-key-0123456789"} { // of one length
		writeFile(t, r.key, "\n "+key+" \r\n")
		got := r.post(t.Context(), t, ask)
		if sent := <-keys; sent != "Bearer "+key || got.status != http.StatusOK {
			t.Errorf("the upstream got %q, the caller %d", sent, got.status)
		}
		if log := r.log.String(); strings.Contains(log, key) {
			t.Errorf("the key stands in the log: %s", log)
		}
	}
	for _, broken := range []string{"", "two\nkeys", "k\x00y", "schlüssel", strings.Repeat("k", 17<<10)} {
		writeFile(t, r.key, broken)
		r.fails(t, r.post(t.Context(), t, ask), http.StatusServiceUnavailable, "model_unavailable")
	}
	r.logged(t, `"reason":"key_file"`)
}
