package toolbroker

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/toolbroker/internal/audit"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
	"cofferdam.dev/services/toolbroker/internal/rpc"
)

// subject and agent of the binding on a Stand, as OpenFGA knows them.
var (
	subject = authz.UserID("user-1")
	agent   = authz.AgentID("agent-1")
)

// canary is the credential of the hostile server: it must be nowhere.
const canary = "canary-5f1d0c9e7a"

// hostileTools are in the catalogue of every test, as x.NAME.
var hostileTools = []string{
	"echo", "typed", "shaped", "misshapen", "count", "crash", "crash_early", "fail", "rpc_error", "bytes", "surrogate", "controls", "huge",
	"image", "exotic", "hang", "environment", "secret", "ask", "garbage", "null_result", "no_such_tool",
}

// opened is a real ToolBroker on a Stand, with the hostile server as namespace x,
// the same server with tools that may be repeated as r, and further ones.
type opened struct {
	stand   *rpctest.Stand
	service *Service
	grants  *grants
	effects string // a line for each effect of the hostile servers
	audit   string // the file, in a folder of its own
	log     *logged
}

func open(t *testing.T, s *rpctest.Stand, further ...catalogue.Server) *opened {
	t.Helper()
	return openWith(t, s, func(c *catalogue.Config) { c.Servers = append(c.Servers, further...) })
}

// openWith is open with a changed catalogue, and a changed configuration.
func openWith(t *testing.T, s *rpctest.Stand, change func(*catalogue.Config), configure ...func(*Config)) *opened {
	t.Helper()
	dir := t.TempDir()
	o := &opened{stand: s, grants: newGrants(t), effects: filepath.Join(dir, "effects"), log: &logged{}}
	must(t, os.WriteFile(filepath.Join(dir, "token"), []byte(canary), 0o600))
	x := catalogue.Server{
		Namespace: "x", Transport: catalogue.TransportStdio, Command: hostile.Command(t, "-effects", o.effects), Tools: hostileTools,
		Credential: &catalogue.Credential{Source: catalogue.SourceFile, Path: filepath.Join(dir, "token"), Env: "API_TOKEN"},
	}
	r := x
	r.Namespace, r.ReadOnly, r.Timeout = "r", true, "1s"
	c := catalogue.Config{Servers: []catalogue.Server{x, r}}
	change(&c)
	config, err := json.Marshal(c)
	must(t, err)
	o.audit = filepath.Join(dir, "audit", "audit.jsonl")
	must(t, os.Mkdir(filepath.Dir(o.audit), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "key"), []byte(strings.Repeat("k", 32)), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "catalogue.json"), config, 0o600))
	rt := &service.Runtime{
		Logger:    slog.New(slog.NewJSONHandler(o.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Telemetry: s.Telemetry, TrustDomain: s.Domain.TrustDomain(), Source: s.Source(t, rpctest.ServiceID("toolbroker")),
	}
	cfg := &Config{
		OpenFGA: o.grants.config(), Catalogue: filepath.Join(dir, "catalogue.json"), Issuer: s.Minter.Issuer(),
		AuditFile: o.audit, AuditKeyFile: filepath.Join(dir, "key"), AuditRotateBytes: audit.DefaultMaxBytes,
		AllowWeakIsolation: true, // the hostile server is the test's own program, among its own files
	}
	for _, f := range configure {
		f(cfg)
	}
	o.service, err = New(t.Context(), cfg, rt, Deps{Backend: s.Backend, Keys: s.Minter.Keys(), backOff: 10 * time.Millisecond})
	must(t, err)
	t.Cleanup(func() {
		must(t, o.service.Close())
		if t.Failed() {
			t.Log(o.log)
		}
	})
	wait(t, func() bool { return o.service.catalogue.Ready(t.Context()) == nil })
	o.grants.allow(t, subject, agent, authz.ToolID("x.count"))
	return o
}

// served is the service as a Door wants it.
func (o *opened) served() rpctest.Service {
	return rpctest.Service{
		Handler: o.service.Handler(),
		ID:      rpctest.ServiceID("toolbroker"),
		Allow:   rpc.Callers(o.stand.Domain.TrustDomain()),
		State: func(t *testing.T) string {
			t.Helper()
			return strings.Join(o.count(t), " ")
		},
	}
}

// count gives the effects in the outside world.
func (o *opened) count(t *testing.T) []string {
	t.Helper()
	return hostile.Effects(t, o.effects)
}

// session is an open service with a client of the sandbox in the lease.
type session struct {
	*opened

	client toolbrokerv1connect.ToolBrokerServiceClient
	// allowed are the tools of the capability; nil is exactly the one that is called.
	allowed []string
	// approve are those of them that need a person's approval.
	approve []string
}

func newSession(t *testing.T, further ...catalogue.Server) *session {
	t.Helper()
	return sessionOn(t, rpctest.NewStand(t), further...)
}

// newSessionWith is newSession with a changed catalogue.
func newSessionWith(t *testing.T, change func(*catalogue.Config)) *session {
	t.Helper()
	return sessionOf(t, openWith(t, rpctest.NewStand(t), change))
}

// sessionOn is a session with another broker of the same store.
func sessionOn(t *testing.T, stand *rpctest.Stand, further ...catalogue.Server) *session {
	t.Helper()
	return sessionOf(t, open(t, stand, further...))
}

func sessionOf(t *testing.T, o *opened) *session {
	t.Helper()
	for _, name := range hostileTools {
		if name != "count" {
			o.grants.allow(t, subject, authz.ToolID("x."+name))
		}
		o.grants.allow(t, subject, authz.ToolID("r."+name))
	}
	url := o.stand.Serve(t, o.served())
	c := o.stand.Dial(t, url, rpctest.ServiceID("toolbroker"), rpctest.SandboxID())
	return &session{opened: o, client: toolbrokerv1connect.NewToolBrokerServiceClient(c.RPC)}
}

func request(e fence.Envelope, tool, args string) *toolbrokerv1.CallToolRequest {
	return &toolbrokerv1.CallToolRequest{Envelope: e.Proto(), ToolId: tool, ToolCallId: e.IdempotencyKey, Arguments: []byte(args)}
}

// callAs calls a tool with an envelope; call makes a new one.
func (s *session) callAs(ctx context.Context, e fence.Envelope, tool, args string) (*toolbrokerv1.CallToolResponse, error) {
	return s.send(ctx, e, request(e, tool, args))
}

// send sends a request with a capability for it.
func (s *session) send(ctx context.Context, e fence.Envelope, req *toolbrokerv1.CallToolRequest) (*toolbrokerv1.CallToolResponse, error) {
	allowed := s.allowed
	if allowed == nil {
		allowed = []string{req.GetToolId()}
	}
	token := s.stand.Minter.Mint(capability.Claims{
		Audience: capability.ToolBroker, Subject: rpctest.SandboxID(), Tools: allowed, ApproveTools: s.approve,
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	})
	return s.client.CallTool(pkgrpc.WithToken(ctx, token), req)
}

func (s *session) call(t *testing.T, tool, args string) (*toolbrokerv1.CallToolResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s.callAs(ctx, s.stand.Envelope(), tool, args)
}

// textOf is what the first text of a result says, or what went wrong.
func textOf(res *toolbrokerv1.CallToolResponse, err error) string {
	if err != nil {
		return err.Error()
	}
	var doc struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(res.GetResult(), &doc); err != nil {
		return err.Error()
	}
	if len(doc.Content) == 0 {
		return ""
	}
	return doc.Content[0].Text
}

// comeBack waits until the server of the namespace x answers again.
func (s *session) comeBack(t *testing.T) {
	t.Helper()
	wait(t, func() bool { _, err := s.call(t, "x.echo", `{}`); return err == nil })
}

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func wantCode(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != want {
		t.Errorf("got %v, want code %q", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wait until a condition holds; what is waited for happens in another process.
func wait(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it did not come to pass within 30 s")
		}
	}
}
