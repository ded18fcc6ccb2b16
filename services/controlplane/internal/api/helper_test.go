package api_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/authn"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/ui"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds a wait for something that must come. A test that needs it all
// has failed.
const patience = time.Minute

const (
	issuer   = "https://issuer.test"
	audience = "cofferdam"
)

// grants is an authorizer with a list.
type grants struct {
	mu      sync.Mutex
	allowed map[string]bool
	away    error // what is answered where the service is not there
}

// leave makes every further check fail with err; nil ends that.
func (g *grants) leave(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away = err
}

func (g *grants) allow(subject, relation, object string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowed[subject+" "+relation+" "+object] = true
}

func (g *grants) revoke(subject, relation, object string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.allowed, subject+" "+relation+" "+object)
}

// Check implements api.Authorizer.
func (g *grants) Check(_ context.Context, subject, relation, object string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away != nil {
		return g.away
	}
	if !g.allowed[subject+" "+relation+" "+object] {
		return fault.New(fault.AccessDenied, "test")
	}
	return nil
}

// fixture is the API on the real domain, behind real servers.
type fixture struct {
	stack             *runstest.Stack
	public, operators string
	grants            *grants
	key               *ecdsa.PrivateKey
	client            *http.Client
}

type options struct {
	script func(**runstest.Stack) runstest.Script
	// change edits the configuration of the API.
	change func(*api.Config)
	// buffer is what the system keeps of a connection at each end; 0 leaves it.
	buffer int
	// domain is what the domain behind the API is made of.
	domain runstest.Options
}

func newFixture(t *testing.T, o options) *fixture {
	t.Helper()
	f := &fixture{grants: &grants{allowed: map[string]bool{}}}
	if o.script == nil {
		o.script = answers("Hello.")
	}
	f.stack = runstest.New(t, o.script(&f.stack), o.domain)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f.key = key
	tokens := func(audience string) *authn.Verifier {
		return must(authn.New(authn.Config{
			Issuer: issuer, Audience: audience, Algorithms: []jose.SignatureAlgorithm{jose.ES256},
			Keys: keys{jose.JSONWebKey{Key: key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}},
		}))
	}
	verifier := tokens(audience)
	logger := slog.New(slog.DiscardHandler)
	cfg := api.Config{Sessions: ui.NewSessions(tokens(audience+ui.AudienceSuffix), verifier, time.Now), Authn: verifier, Authz: f.grants, Runs: f.stack.Runs, Agents: f.stack.Agents, Harnesses: runstest.Harness(t), Logger: logger}
	if o.change != nil {
		o.change(&cfg)
	}
	a := api.New(cfg)
	f.public = serve(t, a.Public(), logger, o.buffer)
	f.operators = serve(t, a.Operators(), logger, o.buffer)
	f.grants.allow("user-1", "can_invoke", "agent:demo")
	f.grants.allow("user-2", "can_invoke", "agent:demo")
	f.grants.allow("operator-1", "operator", "system:cofferdam")
	transport := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		return small(c, err, func(tcp *net.TCPConn) error { return tcp.SetReadBuffer(o.buffer) }, o.buffer > 0)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport}
	return f
}

// serve serves as the control plane does.
func serve(t *testing.T, h http.Handler, logger *slog.Logger, buffer int) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config = service.HTTPServer(h, logger)
	if buffer > 0 {
		s.Listener = smallListener{s.Listener, buffer}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// smallListener makes connections that hold next to nothing for a client that
// does not read.
type smallListener struct {
	net.Listener

	buffer int
}

// Accept implements net.Listener.
func (l smallListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return small(c, err, func(tcp *net.TCPConn) error { return tcp.SetWriteBuffer(l.buffer) }, true)
}

func small(c net.Conn, err error, shrink func(*net.TCPConn) error, wanted bool) (net.Conn, error) {
	if tcp, ok := c.(*net.TCPConn); ok && err == nil && wanted {
		err = shrink(tcp)
	}
	return c, err
}

type keys []jose.JSONWebKey

// Keys implements authn.Keys.
func (k keys) Keys(_ context.Context, kid string) ([]jose.JSONWebKey, error) {
	set := jose.JSONWebKeySet{Keys: k}
	return set.Key(kid), nil
}

func (f *fixture) token(t *testing.T, subject string) string {
	t.Helper()
	return f.sign(t, jwt.Claims{
		Issuer: issuer, Audience: jwt.Audience{audience}, Subject: subject,
		IssuedAt: jwt.NewNumericDate(time.Now()), Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	})
}

func (f *fixture) sign(t *testing.T, c jwt.Claims) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: f.key}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// answer is an HTTP answer that was read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// fault is the error of an answer.
func (a answer) fault(t *testing.T) fault.Safe {
	t.Helper()
	var doc struct {
		Error fault.Safe `json:"error"`
	}
	if err := json.Unmarshal(a.body, &doc); err != nil || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %q is no error of the contract (%v)", a.status, a.body, err)
	}
	return doc.Error
}

func (a answer) json(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%d %q: %v", a.status, a.body, err)
	}
}

// request of user-1 to the public API.
func (f *fixture) request(t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	return f.requestTo(t, f.public, "user-1", method, path, body)
}

func (f *fixture) requestTo(t *testing.T, base, subject, method, path, body string) *http.Request {
	t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, base+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.token(t, subject))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// send sends a request and checks both sides against the document that is served.
func (f *fixture) send(t *testing.T, r *http.Request) answer {
	t.Helper()
	var sent []byte
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		if sent, err = io.ReadAll(body); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	res, err := f.client.Do(r.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{res.StatusCode, res.Header, body}
	keeps(t, r, sent, a)
	return a
}

func (f *fixture) get(t *testing.T, path string) answer {
	t.Helper()
	return f.send(t, f.request(t, http.MethodGet, path, ""))
}

func (f *fixture) post(t *testing.T, path, body string) answer {
	t.Helper()
	return f.send(t, f.request(t, http.MethodPost, path, body))
}

// start starts a run of user-1 and gives its id.
func (f *fixture) start(t *testing.T, message string) string {
	t.Helper()
	a := f.post(t, "/api/v1/runs", `{"agent_id":"demo","conversation_id":"c1","message":"`+message+`"}`)
	var started struct {
		RunID string `json:"run_id"`
	}
	a.json(t, &started)
	if a.status != http.StatusAccepted || started.RunID == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return started.RunID
}

// ended waits for the end of a run and gives its terminal.
func (f *fixture) ended(t *testing.T, runID string) event.Event {
	t.Helper()
	var status struct {
		State    string          `json:"state"`
		Terminal json.RawMessage `json:"terminal"`
	}
	waittest.Until(t, "the run ends", func() bool {
		f.get(t, "/api/v1/runs/"+runID).json(t, &status)
		return status.State == "ended"
	})
	var e event.Event
	if err := json.Unmarshal(status.Terminal, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func started() event.Data {
	return event.RunStarted{HarnessID: runstest.HarnessID, AdapterVersion: runstest.AdapterVersion}
}

// finishes commits and finishes.
func finishes(ctx context.Context, s **runstest.Stack, p *runstest.Play) error {
	if err := (*s).Commit(ctx, p, "snap-"+p.Turn.Envelope.RunID); err != nil {
		return err
	}
	return p.Emit(ctx, event.RunFinished{StopReason: "stop"})
}

// answers says a text and finishes.
func answers(text string) func(**runstest.Stack) runstest.Script {
	return func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			if err := p.Emit(ctx, started()); err != nil {
				return err
			}
			if err := p.Text(ctx, "m1", text); err != nil {
				return err
			}
			return finishes(ctx, s, p)
		}
	}
}

// frame is one frame of a stream of server-sent events.
type frame struct {
	id, event, data string
}

// frames takes a stream apart, and refuses what is not exactly as it has to be:
// LF only, fields in their order, one line of data, one blank line.
func frames(t *testing.T, body []byte) (out []frame) {
	t.Helper()
	if bytes.ContainsRune(body, '\r') {
		t.Fatal("the stream has a CR")
	}
	text, whole := strings.CutSuffix(string(body), "\n\n")
	if !whole && text != "" {
		t.Fatalf("the stream ends within a frame: %q", body)
	}
	if text == "" {
		return nil
	}
	for block := range strings.SplitSeq(text, "\n\n") {
		if block == ": " {
			continue
		}
		var f frame
		lines := strings.Split(block, "\n")
		if rest, ok := strings.CutPrefix(lines[0], "id: "); ok {
			f.id, lines = rest, lines[1:]
		}
		if rest, ok := strings.CutPrefix(lines[0], "event: "); ok {
			f.event, lines = rest, lines[1:]
		}
		data, ok := strings.CutPrefix(lines[0], "data: ")
		if !ok || len(lines) != 1 || !json.Valid([]byte(data)) {
			t.Fatalf("a frame is %q", block)
		}
		f.data = data
		out = append(out, f)
	}
	return out
}

// kind is the type of an AG-UI frame.
func (f frame) kind() string {
	var head struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal([]byte(f.data), &head) // frames has read it
	return head.Type
}

func (f frame) object(t *testing.T) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(f.data), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func kinds(list []frame) (out []string) {
	for _, f := range list {
		out = append(out, f.kind())
	}
	return out
}

func moment() time.Time { return time.Date(2026, 8, 17, 0, 0, 0, 0, time.UTC) }
