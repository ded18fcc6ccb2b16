package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/metric"

	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/services/modelproxy/internal/proxy"
)

const (
	// keyCanary must reach the upstream and nobody else.
	keyCanary = "sk-canary-0123456789abcdef"
	// textCanary is what an upstream says when it fails; nobody may see it.
	textCanary = "provider-canary-text"
	// tokenCanary is the caller's capability; no upstream may see it.
	tokenCanary = "capability-canary"
)

const (
	sayHello = `{"id":"c1","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}`
	sayStop  = `{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	whole    = `{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"total_tokens":1}}`
	ask      = `{"model":"main","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	askWhole = `{"model":"main","messages":[{"role":"user","content":"hi"}]}`
)

// rig is a proxy between a real client and a real upstream.
type rig struct {
	url    string
	client *http.Client
	log    *logBuffer
	key    string // path of the key file
}

type options struct {
	limits proxy.Limits
	http1  bool
	alias  string // in the caller's capability; "main" where empty
	base   string // of the upstream instead of the rig's
	ca     string
	fields []string
	model  string

	kind    proxy.Kind
	wires   []proxy.Wire
	side    string
	names   []string
	drop    bool
	noRetry bool
	meter   metric.Meter
}

// newRig starts both. The caller speaks TLS with HTTP/2, as sandboxes do,
// unless the options say HTTP/1.1.
func newRig(t *testing.T, upstream http.HandlerFunc, o options) *rig {
	t.Helper()
	if o.base == "" {
		up := httptest.NewServer(upstream)
		t.Cleanup(up.Close)
		o.base = up.URL + "/v1"
		if o.kind == proxy.KindGemini {
			o.base = up.URL + "/v1beta"
		}
	}
	r := &rig{log: &logBuffer{}, key: filepath.Join(t.TempDir(), "key")}
	writeFile(t, r.key, keyCanary+"\n")
	p, err := proxy.New(proxy.Config{Limits: o.limits, Aliases: map[string]proxy.Alias{
		"main": {
			Kind: o.kind, Wires: o.wires, BaseURL: o.base, KeyFile: r.key, Model: o.model, CAFile: o.ca, Fields: o.fields,
			SideModel: o.side, Names: o.names, DropUnknown: o.drop, NoRetry: o.noRetry,
		},
		"demo": {Kind: proxy.KindDemo},
	}}, proxy.Deps{
		Logger: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Demo: demomodel.New(), Meter: o.meter,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if o.alias == "" {
		o.alias = "main"
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		p.ServeHTTP(w, req.WithContext(proxy.WithAlias(req.Context(), o.alias)))
	}))
	srv.EnableHTTP2 = !o.http1
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	r.url, r.client = srv.URL, srv.Client()
	return r
}

// reply is what the caller got; err is how its body ended.
type reply struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
	err     error
}

func (r *rig) post(ctx context.Context, t *testing.T, body string, header ...string) reply {
	t.Helper()
	return r.postTo(ctx, t, proxy.Path, body, header...)
}

func (r *rig) postTo(ctx context.Context, t *testing.T, path, body string, header ...string) reply {
	t.Helper()
	res := r.openAt(ctx, t, path, body, header...)
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, trailer: res.Trailer, body: string(data), err: err}
}

// open sends a request and leaves the answer's body to the test.
func (r *rig) open(ctx context.Context, t *testing.T, body string, header ...string) *http.Response {
	t.Helper()
	return r.openAt(ctx, t, proxy.Path, body, header...)
}

func (r *rig) openAt(ctx context.Context, t *testing.T, path, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+tokenCanary)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// fails demands the wire's error with a code, and no canary in it.
func (r *rig) fails(t *testing.T, got reply, status int, code string) {
	t.Helper()
	var doc struct {
		Error struct {
			Message   string  `json:"message"`
			Type      string  `json:"type"`
			Code      string  `json:"code"`
			Param     *string `json:"param"`
			Retryable bool    `json:"retryable"`
			Incident  string  `json:"incident_id"`
		} `json:"error"`
	}
	if got.err != nil || got.status != status || json.Unmarshal([]byte(got.body), &doc) != nil {
		t.Fatalf("got %d %q (%v), want %d %s", got.status, got.body, got.err, status, code)
	}
	e := doc.Error
	if e.Code != code || e.Message == "" || e.Type == "" || e.Incident == "" {
		t.Errorf("error is %+v, want code %s", e, code)
	}
	if got.header.Get("X-Should-Retry") == "" || (got.header.Get("X-Should-Retry") == "true") != e.Retryable {
		t.Errorf("X-Should-Retry %q, retryable %v", got.header.Get("X-Should-Retry"), e.Retryable)
	}
	if got.header.Get("Content-Type") != "application/json" {
		t.Errorf("content type %q", got.header.Get("Content-Type"))
	}
	r.clean(t, got)
}

// isReset demands that the stream began and was broken, not ended.
func (r *rig) isReset(t *testing.T, got reply) {
	t.Helper()
	if got.status != http.StatusOK || got.err == nil {
		t.Errorf("got %d %q, ended with %v; want a broken stream", got.status, got.body, got.err)
	}
	if strings.Contains(got.body, "[DONE]") {
		t.Errorf("a broken stream has a terminal: %q", got.body)
	}
	r.clean(t, got)
}

// clean demands that no canary got out.
func (r *rig) clean(t *testing.T, got reply) {
	t.Helper()
	var header bytes.Buffer
	_ = got.header.Write(&header)
	for _, canary := range []string{keyCanary, textCanary, tokenCanary} {
		if strings.Contains(got.body, canary) || strings.Contains(header.String(), canary) {
			t.Errorf("%s reached the caller: %s\n%s", canary, header.String(), got.body)
		}
		if log := r.log.String(); strings.Contains(log, canary) {
			t.Errorf("%s stands in the log:\n%s", canary, log)
		}
	}
}

// logged waits for nothing: the record is written before the answer ends.
func (r *rig) logged(t *testing.T, want string) {
	t.Helper()
	if log := r.log.String(); !strings.Contains(log, want) {
		t.Errorf("%s is not in the log:\n%s", want, log)
	}
}

// events makes an upstream that streams these events, each flushed.
func events(data ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, d := range data {
			_, _ = io.WriteString(w, "data: "+d+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
