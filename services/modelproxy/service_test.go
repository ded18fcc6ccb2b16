package modelproxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/modelproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	path      = "/v1/chat/completions"
	keyCanary = "sk-canary-0123456789abcdef"
	answer    = `data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
)

// upstream is a model endpoint that remembers what it was sent.
type upstream struct {
	mu     sync.Mutex
	calls  int
	header http.Header
	// hold keeps an answer open until the call ends.
	hold atomic.Bool
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.calls++
	u.header = r.Header.Clone()
	u.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream")
	if u.hold.Load() {
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	for end, body := range answers() {
		if strings.HasSuffix(r.URL.Path, end) {
			if strings.HasPrefix(body, "{") {
				w.Header().Set("Content-Type", "application/json")
			}
			_, _ = io.WriteString(w, body)
		}
	}
}

// state is what a call leaves behind.
func (u *upstream) state(*testing.T) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return fmt.Sprint("upstream calls: ", u.calls)
}

// open is the real service on a Stand, with the aliases demo, main and every.
func open(t *testing.T, s *rpctest.Stand) (rpctest.Service, *upstream) {
	t.Helper()
	return openWith(t, s, s.Writer, 0)
}

func openWith(t *testing.T, s *rpctest.Stand, records fence.Reader, callsPerRun int) (rpctest.Service, *upstream) {
	t.Helper()
	up := &upstream{}
	srv := httptest.NewServer(up)
	t.Cleanup(srv.Close)
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, keyCanary)
	aliases := filepath.Join(t.TempDir(), "aliases.json")
	write(t, aliases, fmt.Sprintf(`{"aliases":{"demo":{"kind":"demo"},"main":{"base_url":%[1]q,"key_file":%[2]q},
		"every":{"base_url":%[1]q,"key_file":%[2]q,"wires":["openai_chat","openai_responses","anthropic_messages","gemini"]}}}`, srv.URL+"/v1", key))
	cfg := &modelproxy.Config{Aliases: aliases, Issuer: s.Minter.Issuer(), CallsPerRun: callsPerRun}
	svc, err := modelproxy.New(t.Context(), cfg, runtime(t, s), modelproxy.Deps{Records: records, Keys: s.Minter.Keys()})
	must(t, err)
	t.Cleanup(func() { must(t, svc.Close()) })
	return rpctest.Service{
		Handler: svc.Handler(), ID: rpctest.ServiceID("modelproxy"), State: up.state,
		Allow: identity.AllowList{identity.AnySandbox(s.Domain.TrustDomain())},
	}, up
}

func runtime(t *testing.T, s *rpctest.Stand) *service.Runtime {
	t.Helper()
	return &service.Runtime{
		Logger: s.Logger, Telemetry: s.Telemetry, TrustDomain: s.Domain.TrustDomain(),
		Source: s.Source(t, rpctest.ServiceID("modelproxy")),
	}
}

// ask makes one streamed call and gives what was read of the answer. An answer
// that did not begin is the fault that it names.
func ask(ctx context.Context, c *rpctest.Client, e fence.Envelope, model, message string) (string, error) {
	return send(ctx, c, e, http.MethodPost, path, fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":%q}]}`, model, message))
}

func send(ctx context.Context, c *rpctest.Client, e fence.Envelope, method, path, body string) (string, error) {
	header, err := rpc.EncodeEnvelope(e)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.BaseURL+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(rpc.EnvelopeHeader, header)
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if res.StatusCode == http.StatusOK || err != nil {
		return string(data), err
	}
	f, ok := fault.ReadHTTP(data)
	if !ok {
		return "", fmt.Errorf("status %d and no fault: %s", res.StatusCode, data)
	}
	return "", f
}

// What is refused at the door causes no model call.
func TestDoor(t *testing.T) {
	rpctest.Door{
		Procedure: "POST " + path,
		Audience:  capability.ModelProxy,
		Fence:     rpc.RunFence,
		Changes:   true,
		Scope:     func(c *capability.Claims) { c.ModelAlias = "main" },
		Open: func(t *testing.T, s *rpctest.Stand) rpctest.Service {
			t.Helper()
			svc, _ := open(t, s)
			return svc
		},
		Call: func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
			got, err := ask(ctx, c, e, "main", "hi")
			if err == nil && got != answer {
				return fmt.Errorf("answered %q", got)
			}
			return err
		},
	}.Run(t)
}

// Every route stands behind the same door.
func TestEveryRouteIsFenced(t *testing.T) {
	s := rpctest.NewStand(t)
	svc, up := open(t, s)
	e := s.Envelope()
	c := session(t, s, svc, e, "every")
	token := c.Token
	call := func(pattern string, to route) (string, error) {
		method, _, _ := strings.Cut(pattern, " ")
		return send(t.Context(), c, e, method, to.path, to.body)
	}
	for pattern, to := range routes() {
		if got, err := call(pattern, to); err != nil || !strings.Contains(got, to.want) {
			t.Errorf("%s: %q, %v", pattern, got, err)
		}
		c.Token = ""
		if _, err := call(pattern, to); !fault.Is(err, fault.CapabilityMissing) {
			t.Errorf("%s without a capability: %v", pattern, err)
		}
		c.Token = token
	}
	before := up.state(t)
	s.Replace(t)
	for pattern, to := range routes() {
		if _, err := call(pattern, to); !fault.Is(err, fault.StaleLease) {
			t.Errorf("%s after the lease was replaced: %v", pattern, err)
		}
	}
	if after := up.state(t); after != before {
		t.Errorf("%s, then %s", before, after)
	}
}

// Embeddings are the state facade's, as itself and nobody else's, and it reaches
// nothing besides.
func TestEmbeddingsAreTheStateFacades(t *testing.T) {
	s := rpctest.NewStand(t)
	svc, up := open(t, s)
	svc.Allow = nil
	for _, id := range []spiffeid.ID{rpctest.ServiceID("statefacade"), rpctest.ServiceID("toolbroker"), rpctest.SandboxID()} {
		svc.Allow = append(svc.Allow, identity.Exactly(id)) // the routes have to tell them apart
	}
	e := s.Envelope()
	sandbox := session(t, s, svc, e, "demo")
	facade, other := s.Dial(t, sandbox.BaseURL, svc.ID, rpctest.ServiceID("statefacade")), s.Dial(t, sandbox.BaseURL, svc.ID, rpctest.ServiceID("toolbroker"))
	const embeddings, body = "/v1/embeddings", `{"model":"demo","input":"what is remembered"}`
	if got, err := send(t.Context(), facade, e, http.MethodPost, embeddings, body); err != nil || !strings.Contains(got, `"embedding":[`) {
		t.Errorf("%q, %v", got, err)
	}
	facade.Token = sandbox.Token
	for name, call := range map[string]func() (string, error){
		"a sandbox with its capability":        func() (string, error) { return send(t.Context(), sandbox, e, http.MethodPost, embeddings, body) },
		"another service":                      func() (string, error) { return send(t.Context(), other, e, http.MethodPost, embeddings, body) },
		"the state facade for a model":         func() (string, error) { return ask(t.Context(), facade, e, "demo", "hi") },
		"the state facade for names of models": func() (string, error) { return send(t.Context(), facade, e, http.MethodGet, "/v1/models", "") },
	} {
		if got, err := call(); !fault.Is(err, fault.CallerNotAllowed) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := send(t.Context(), facade, e, http.MethodPost, embeddings, `{"model":"main","input":"x"}`); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an alias without this wire: %v", err)
	}
	if state := up.state(t); state != "upstream calls: 0" {
		t.Error(state)
	}
}

// All routes count on one account.
func TestCallsOfARunAreBounded(t *testing.T) {
	s := rpctest.NewStand(t)
	svc, up := openWith(t, s, s.Writer, 1)
	e := s.Envelope()
	c := session(t, s, svc, e, "every")
	if _, err := ask(t.Context(), c, e, "m", "hi"); err != nil {
		t.Fatal(err)
	}
	for pattern, to := range routes() {
		method, _, _ := strings.Cut(pattern, " ")
		if _, err := send(t.Context(), c, e, method, to.path, to.body); !fault.Is(err, fault.AccessDenied) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	if state := up.state(t); state != "upstream calls: 1" {
		t.Error(state)
	}
}

type route struct{ path, body, want string }

// routes are all that there are, with a request and a part of its answer.
func routes() map[string]route {
	return map[string]route{
		"POST /v1/chat/completions":      {path, `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`, "[DONE]"},
		"POST /v1/responses":             {"/v1/responses", `{"model":"m","stream":true,"input":"hi"}`, "response.completed"},
		"POST /v1/messages":              {"/v1/messages?beta=true", `{"model":"m","stream":true,"max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`, "message_stop"},
		"POST /v1/messages/count_tokens": {"/v1/messages/count_tokens?beta=true", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "input_tokens"},
		"POST /v1beta/models/{call}":     {"/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"hi"}]}]}`, "STOP"},
		"GET /v1/models":                 {"/v1/models", "", `"id":"every"`},
	}
}

// answers of the upstream by the end of their path.
func answers() map[string]string {
	return map[string]string{ //nolint:gosec // routes and answers
		"/chat/completions":      answer,
		"/responses":             `data: {"type":"response.completed","response":{"status":"completed"}}` + "\n\n",
		"/messages":              `data: {"type":"message_start"}` + "\n\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n",
		"/count_tokens":          `{"input_tokens":1}`,
		":streamGenerateContent": `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n",
	}
}

// session is a client of the sandbox in the lease, with a capability for alias.
func session(t *testing.T, s *rpctest.Stand, svc rpctest.Service, e fence.Envelope, alias string) *rpctest.Client {
	t.Helper()
	c := s.Dial(t, s.Serve(t, svc), svc.ID, rpctest.SandboxID())
	c.Token = s.Minter.Mint(capability.Claims{
		Audience: capability.ModelProxy, Subject: rpctest.SandboxID(), ModelAlias: alias,
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	})
	return c
}

func TestOnlyTheAliasOfTheCapability(t *testing.T) {
	s := rpctest.NewStand(t)
	svc, up := open(t, s)
	e := s.Envelope()
	c := session(t, s, svc, e, "demo")
	got, err := ask(t.Context(), c, e, "demo", ">>say hello")
	if err != nil || !strings.Contains(got, "hello") || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("the demo model: %q, %v", got, err)
	}
	// The body names another alias; the capability decides all the same.
	if got, err := ask(t.Context(), c, e, "main", ">>say hello"); err != nil || !strings.Contains(got, "hello") {
		t.Errorf("another alias in the body: %q, %v", got, err)
	}
	if state := up.state(t); state != "upstream calls: 0" {
		t.Error(state)
	}
}

func TestNeitherTokenNorEnvelopeGoesOn(t *testing.T) {
	s := rpctest.NewStand(t)
	svc, up := open(t, s)
	e := s.Envelope()
	c := session(t, s, svc, e, "main")
	if _, err := ask(t.Context(), c, e, "main", "hi"); err != nil {
		t.Fatal(err)
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	if got := up.header.Get("Authorization"); got != "Bearer "+keyCanary {
		t.Errorf("the upstream saw another Authorization, of %d bytes", len(got))
	}
	for name, values := range up.header {
		if strings.HasPrefix(name, "Cofferdam") || strings.Contains(fmt.Sprint(values), c.Token) {
			t.Errorf("the upstream saw %s", name)
		}
	}
}

// A sandbox may name a later deadline than its run has; the earlier one counts.
func TestCallEndsAtItsDeadline(t *testing.T) {
	tests := map[string]func(s *rpctest.Stand, e *fence.Envelope, d time.Duration) fence.Reader{
		"of the envelope": func(s *rpctest.Stand, e *fence.Envelope, d time.Duration) fence.Reader {
			e.Deadline = time.Now().Add(d)
			return s.Writer
		},
		"of the run": func(s *rpctest.Stand, _ *fence.Envelope, d time.Duration) fence.Reader {
			return shortRun{s.Writer, time.Now().Add(d)}
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got string
			var err error
			// On a busy machine the stream has not begun in so short a time.
			for d := 300 * time.Millisecond; d < time.Minute && !strings.Contains(got, `"hi"`); d *= 4 {
				s := rpctest.NewStand(t)
				e := s.Envelope()
				svc, up := openWith(t, s, tt(s, &e, d), 0)
				up.hold.Store(true)
				got, err = ask(t.Context(), session(t, s, svc, e, "main"), e, "main", "hi")
			}
			if err == nil || !strings.Contains(got, `"hi"`) || strings.Contains(got, "[DONE]") {
				t.Errorf("the stream went on past its deadline: %q, %v", got, err)
			}
		})
	}
}

// shortRun is the committed record with an earlier deadline of its run.
type shortRun struct {
	fence.Reader

	deadline time.Time
}

func (r shortRun) Committed(ctx context.Context, id string) (fence.Committed, error) {
	c, err := r.Reader.Committed(ctx, id)
	c.RunDeadline = r.deadline
	return c, err
}

// The service as its command makes it: its own view of the store, and keys that
// it asks the capability service for.
func TestStoreAndRemoteKeys(t *testing.T) {
	s := rpctest.NewStand(t)
	self, issuer := rpctest.ServiceID("modelproxy"), rpctest.ServiceID("capability")
	jwks := s.Serve(t, rpctest.Service{Handler: s.Minter, ID: issuer, Allow: identity.AllowList{identity.Exactly(self)}})
	aliases := filepath.Join(t.TempDir(), "aliases.json")
	write(t, aliases, `{"aliases":{"demo":{"kind":"demo"}}}`)
	svc, err := modelproxy.New(t.Context(), &modelproxy.Config{
		Store: s.StorePath, Aliases: aliases, CapabilityURL: jwks, CapabilityID: issuer.String(), Issuer: s.Minter.Issuer(),
	}, runtime(t, s), modelproxy.Deps{})
	must(t, err)
	t.Cleanup(func() { must(t, svc.Close()) })
	e := s.Envelope()
	served := rpctest.Service{Handler: svc.Handler(), ID: self, Allow: identity.AllowList{identity.AnySandbox(s.Domain.TrustDomain())}}
	c := session(t, s, served, e, "demo")
	if got, err := ask(t.Context(), c, e, "demo", ">>say hello"); err != nil || !strings.Contains(got, "hello") {
		t.Errorf("%q, %v", got, err)
	}
	s.Replace(t)
	if _, err := ask(t.Context(), c, e, "demo", ">>say hello"); !fault.Is(err, fault.StaleLease) {
		t.Errorf("after the lease was replaced: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
