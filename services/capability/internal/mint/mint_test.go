package mint_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/sqlitestore"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/capability/internal/mint"
	"cofferdam.dev/services/capability/internal/signingkey"
)

const (
	bindingID = "hs_0123456789abcdef"
	runID     = "run_1"
	owner     = "replica-1/boot-1"
	instance  = "instance-1"
	issuer    = "spiffe://cofferdam.test/svc/capability"
)

var (
	td      = spiffeid.RequireTrustDomainFromString("cofferdam.test")
	subject = identity.Sandbox(td, instance)
	// start is not a whole second, which matters for what is cut to one.
	start = time.Unix(1_900_000_000, int64(time.Second/4))
)

// countingSigner tells whether anything was signed.
type countingSigner struct {
	*signingkey.Ring
	signed atomic.Int32
}

func (s *countingSigner) Sign(typ string, payload []byte) (compact, kid string, err error) {
	s.signed.Add(1)
	return s.Ring.Sign(0, typ, payload)
}

// hooked is a real store that does something right after a read.
type hooked struct {
	binding.Backend
	after func()
	err   error
}

func (h *hooked) Load(ctx context.Context, id string) (binding.Record, error) {
	if h.err != nil {
		return binding.Record{}, h.err
	}
	r, err := h.Backend.Load(ctx, id)
	if h.after != nil {
		h.after()
	}
	return r, err
}

type world struct {
	store  *hooked
	writer *binding.Writer
	guard  *fence.Guard
	signer *countingSigner
	minter *mint.Minter
	keys   capability.KeySet
	log    *bytes.Buffer
	now    time.Time
}

// newWorld has a binding with generation 2 of epoch 1, leased to a sandbox, and
// a run with ten minutes left.
func newWorld(t *testing.T, change func(*binding.Record)) *world {
	t.Helper()
	backend, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	key, err := signingkey.New()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := signingkey.NewRing(key)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{store: &hooked{Backend: backend}, signer: &countingSigner{Ring: ring}, log: &bytes.Buffer{}, now: start}
	if w.keys, err = capability.ParseKeySet(ring.JWKS()); err != nil {
		t.Fatal(err)
	}
	w.writer = binding.NewWriter(backend, w.clock)
	w.guard = fence.NewGuard(w.writer, w.clock)
	w.list(t, endpoint)
	r := binding.Record{
		ID: bindingID, Epoch: 1, Generation: 2,
		Identity: binding.Identity{Environment: "test", Subject: "user-canary", AgentID: "demo", ConversationID: "c1"},
		Lease:    &binding.Lease{ClaimName: "claim", InstanceUID: instance, State: binding.LeaseBound},
		Run:      &binding.Run{ID: runID, RequestID: "req_1", StartedAt: w.now, Deadline: w.now.Add(10 * time.Minute), Owner: owner},
	}
	if change != nil {
		change(&r)
	}
	if _, inserted, err := backend.Insert(t.Context(), r); err != nil || !inserted {
		t.Fatalf("insert: %v %v", inserted, err)
	}
	return w
}

func (w *world) clock() time.Time { return w.now }

// list makes the minter, with a list of token endpoints.
func (w *world) list(t *testing.T, endpoints ...string) {
	t.Helper()
	m, err := mint.New(mint.Config{
		Issuer: issuer, TrustDomain: td, Records: w.store, Signer: w.signer, Keys: w.keys, MaxTTL: time.Hour, Now: w.clock, TokenEndpoints: endpoints,
		Logger: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.minter = m
}

func envelope(w *world) fence.Envelope {
	return fence.Envelope{
		BindingID: bindingID, Epoch: 1, Generation: 2, RunID: runID,
		RequestID: "req_2", IdempotencyKey: "mint_1", Deadline: w.now.Add(time.Minute),
	}
}

func (w *world) grant(t *testing.T, change func(*fence.Envelope)) fence.Grant {
	t.Helper()
	e := envelope(w)
	if change != nil {
		change(&e)
	}
	admit := w.guard.Admit
	if e.RunID == "" {
		admit = w.guard.AdmitLease
	}
	g, err := admit(t.Context(), e)
	if err != nil {
		t.Fatalf("admit: %v", err)
	}
	return g
}

func noRun(e *fence.Envelope) { e.RunID = "" }

func allScopes() []mint.Scope {
	return []mint.Scope{
		{Audience: capability.HarnessWorker},
		{Audience: capability.ToolBroker, Tools: []string{"fs.list_directory", "fs.read_text_file"}},
		{Audience: capability.ThreadState},
		{Audience: capability.Memory, MemoryScopes: []string{"user"}},
		{Audience: capability.FileBroker, Handles: []string{"handle-1"}},
		{Audience: capability.ModelProxy, ModelAlias: "demo"},
	}
}

func request() mint.Request {
	return mint.Request{Subject: subject, Owner: owner, Scopes: allScopes()}
}

// refused asserts the code, that nothing was signed, and that the audit log has
// no entry.
func (w *world) refused(t *testing.T, g fence.Grant, req mint.Request, want fault.Code) {
	t.Helper()
	tokens, err := w.minter.Mint(t.Context(), g, req)
	if !fault.Is(err, want) {
		t.Errorf("error = %v, want %s", err, want)
	}
	if len(tokens) > 0 || w.signer.signed.Load() > 0 || w.log.Len() > 0 {
		t.Errorf("%d tokens, %d signatures, log %s, want none of them", len(tokens), w.signer.signed.Load(), w.log)
	}
}

func (w *world) verify(t *testing.T, tok mint.Token) (capability.Claims, error) {
	t.Helper()
	v, err := capability.NewVerifier(capability.Config{Issuer: issuer, Keys: w.keys, Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	return v.Verify(t.Context(), tok.Reveal(), tok.Audience, subject)
}

func TestMintForARun(t *testing.T) {
	w := newWorld(t, nil)
	req := request()
	tokens, err := w.minter.Mint(t.Context(), w.grant(t, nil), req)
	if err != nil {
		t.Fatal(err)
	}
	if len(tokens) != len(req.Scopes) {
		t.Fatalf("%d tokens for %d scopes", len(tokens), len(req.Scopes))
	}
	ids := map[string]bool{}
	for i, tok := range tokens {
		s := req.Scopes[i]
		c, err := w.verify(t, tok)
		if err != nil {
			t.Fatalf("%s: %v", s.Audience, err)
		}
		if err := c.Matches(envelope(w)); err != nil {
			t.Errorf("%s: %v", s.Audience, err)
		}
		if c.Audience != s.Audience || !slices.Equal(c.Tools, s.Tools) || !slices.Equal(c.MemoryScopes, s.MemoryScopes) ||
			!slices.Equal(c.Handles, s.Handles) || c.ModelAlias != s.ModelAlias || c.ID != tok.ID || !c.Expiry.Equal(tok.ExpiresAt) {
			t.Errorf("claims = %+v, token %+v, scope %+v", c, tok, s)
		}
		if deadline := w.now.Add(10 * time.Minute); c.Expiry.After(deadline) || c.Expiry.Before(deadline.Add(-time.Second)) {
			t.Errorf("%s: exp = %v, want the run's deadline %v in whole seconds", s.Audience, c.Expiry, deadline)
		}
		ids[c.ID] = true
	}
	if len(ids) != len(tokens) {
		t.Errorf("%d ids for %d tokens", len(ids), len(tokens))
	}
}

func TestLifecycleCapability(t *testing.T) {
	for name, change := range map[string]func(*binding.Record){
		"while a run is active":  nil,
		"while no run is active": func(r *binding.Record) { r.Run = nil },
		"while the run is cancelled": func(r *binding.Record) {
			r.Run.End = binding.End{Kind: binding.EndCancelling, Reason: "client_request"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			tokens, err := w.minter.Mint(t.Context(), w.grant(t, noRun), mint.Request{Subject: subject, Scopes: allScopes()[:1]})
			if err != nil {
				t.Fatal(err)
			}
			c, err := w.verify(t, tokens[0])
			if err != nil || !c.Lifecycle() || c.Audience != capability.HarnessWorker {
				t.Fatalf("claims = %+v, error %v", c, err)
			}
			if life := c.Expiry.Sub(w.now); life > mint.LifecycleTTL || life < mint.LifecycleTTL-time.Second {
				t.Errorf("life = %v, want %v", life, mint.LifecycleTTL)
			}
		})
	}
}

func TestWithoutARunOnlyALifecycleCapability(t *testing.T) {
	w := newWorld(t, nil)
	for _, s := range allScopes()[1:] {
		w.refused(t, w.grant(t, noRun), mint.Request{Subject: subject, Scopes: []mint.Scope{s}}, fault.InvalidRequest)
		w.refused(t, w.grant(t, noRun), mint.Request{Subject: subject, Scopes: []mint.Scope{{Audience: capability.HarnessWorker}, s}}, fault.InvalidRequest)
	}
	w.refused(t, w.grant(t, noRun), mint.Request{Subject: subject, Owner: owner, Scopes: allScopes()[:1]}, fault.InvalidRequest)
}

func TestNarrowing(t *testing.T) {
	many := make([]string, capability.MaxTools+1)
	for i := range many {
		many[i] = "fs.tool_" + strings.Repeat("x", i/26+1) + string(rune('a'+i%26))
	}
	rows := map[string][]mint.Scope{
		"no scope":                  {},
		"an unknown audience":       {{Audience: "everything"}},
		"no audience":               {{}},
		"an audience twice":         {{Audience: capability.ThreadState}, {Audience: capability.ThreadState}},
		"seven scopes":              append(allScopes(), mint.Scope{Audience: capability.ThreadState}),
		"a wildcard":                {{Audience: capability.ToolBroker, Tools: []string{"fs.*"}}},
		"a tool without namespace":  {{Audience: capability.ToolBroker, Tools: []string{"read"}}},
		"a tool twice":              {{Audience: capability.ToolBroker, Tools: []string{"fs.a", "fs.a"}}},
		"too many tools":            {{Audience: capability.ToolBroker, Tools: many}},
		"no memory scope":           {{Audience: capability.Memory}},
		"an unknown memory scope":   {{Audience: capability.Memory, MemoryScopes: []string{"world"}}},
		"a memory scope twice":      {{Audience: capability.Memory, MemoryScopes: []string{"user", "user"}}},
		"no handle":                 {{Audience: capability.FileBroker}},
		"an empty handle":           {{Audience: capability.FileBroker, Handles: []string{""}}},
		"a handle that is a path":   {{Audience: capability.FileBroker, Handles: []string{"../../etc/passwd"}}},
		"no alias":                  {{Audience: capability.ModelProxy}},
		"an alias that is a URL":    {{Audience: capability.ModelProxy, ModelAlias: "https://elsewhere.example"}},
		"one good and one bad":      {{Audience: capability.ThreadState}, {Audience: capability.Memory}},
		"everything in one":         {{Audience: capability.ToolBroker, Tools: []string{"fs.a"}, MemoryScopes: []string{"user"}, Handles: []string{"h"}, ModelAlias: "m"}},
		"worker with tools":         {{Audience: capability.HarnessWorker, Tools: []string{"fs.a"}}},
		"worker with alias":         {{Audience: capability.HarnessWorker, ModelAlias: "demo"}},
		"thread state with handles": {{Audience: capability.ThreadState, Handles: []string{"h"}}},
		"memory with tools":         {{Audience: capability.Memory, MemoryScopes: []string{"user"}, Tools: []string{"fs.a"}}},
		"files with memory":         {{Audience: capability.FileBroker, Handles: []string{"h"}, MemoryScopes: []string{"user"}}},
		"model with handles":        {{Audience: capability.ModelProxy, ModelAlias: "demo", Handles: []string{"h"}}},
		"tools with alias":          {{Audience: capability.ToolBroker, Tools: []string{"fs.a"}, ModelAlias: "demo"}},
	}
	w := newWorld(t, nil)
	for name, scopes := range rows {
		t.Run(name, func(t *testing.T) {
			w.refused(t, w.grant(t, nil), mint.Request{Subject: subject, Owner: owner, Scopes: scopes}, fault.InvalidRequest)
		})
	}
}

func TestAToolBrokerCapabilityWithoutToolsAllowsNone(t *testing.T) {
	w := newWorld(t, nil)
	tokens, err := w.minter.Mint(t.Context(), w.grant(t, nil), mint.Request{Subject: subject, Owner: owner, Scopes: []mint.Scope{{Audience: capability.ToolBroker}}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := w.verify(t, tokens[0]); err != nil || len(c.Tools) != 0 {
		t.Errorf("claims = %+v, error %v", c, err)
	}
}

func TestACapabilityThatWouldBeTooLarge(t *testing.T) {
	tools := make([]string, 100)
	for i := range tools {
		tools[i] = "fs." + strings.Repeat("x", 100) + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	w := newWorld(t, nil)
	_, err := w.minter.Mint(t.Context(), w.grant(t, nil), mint.Request{Subject: subject, Owner: owner, Scopes: []mint.Scope{
		{Audience: capability.ThreadState}, {Audience: capability.ToolBroker, Tools: tools},
	}})
	if !fault.Is(err, fault.RequestTooLarge) {
		t.Errorf("error = %v, want request_too_large", err)
	}
	if w.log.Len() > 0 {
		t.Errorf("the audit log has what was not handed out: %s", w.log)
	}
}

func TestOnlyTheCommittedSandboxAndReplica(t *testing.T) {
	for name, tc := range map[string]struct {
		record func(*binding.Record)
		req    func(*mint.Request)
		want   fault.Code
	}{
		"another instance": {req: func(r *mint.Request) { r.Subject = identity.Sandbox(td, "instance-2") }, want: fault.StaleLease},
		"a service":        {req: func(r *mint.Request) { r.Subject = identity.Service(td, "toolbroker") }, want: fault.InvalidRequest},
		"no subject":       {req: func(r *mint.Request) { r.Subject = spiffeid.ID{} }, want: fault.InvalidRequest},
		"another trust domain": {req: func(r *mint.Request) {
			r.Subject = identity.Sandbox(spiffeid.RequireTrustDomainFromString("other.test"), instance)
		}, want: fault.InvalidRequest},
		"no owner":               {req: func(r *mint.Request) { r.Owner = "" }, want: fault.InvalidRequest},
		"another replica":        {req: func(r *mint.Request) { r.Owner = "replica-2/boot-1" }, want: fault.StaleLease},
		"an earlier incarnation": {req: func(r *mint.Request) { r.Owner = "replica-1/boot-0" }, want: fault.StaleLease},
		"no lease":               {record: func(r *binding.Record) { r.Lease = nil }, want: fault.SandboxNotReady},
		"no instance yet":        {record: func(r *binding.Record) { r.Lease.InstanceUID, r.Lease.State = "", binding.LeaseClaiming }, want: fault.SandboxNotReady},
		"cancelled":              {record: func(r *binding.Record) { r.Run.End.Kind = binding.EndCancelling }, want: fault.Cancelled},
		"succeeded":              {record: func(r *binding.Record) { r.Run.End.Kind = binding.EndSuccess }, want: fault.Cancelled},
		"lost":                   {record: func(r *binding.Record) { r.Run.End.Kind = binding.EndLost }, want: fault.Cancelled},
		"half a second is left":  {record: func(r *binding.Record) { r.Run.Deadline = start.Add(time.Second / 2) }, want: fault.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.record)
			req := request()
			if tc.req != nil {
				tc.req(&req)
			}
			w.refused(t, w.grant(t, nil), req, tc.want)
		})
	}
}

func TestMaxTTLBoundsALongRun(t *testing.T) {
	w := newWorld(t, func(r *binding.Record) { r.Run.Deadline = start.Add(30 * time.Hour) })
	tokens, err := w.minter.Mint(t.Context(), w.grant(t, nil), request())
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range tokens {
		if life := tok.ExpiresAt.Sub(w.now); life > time.Hour {
			t.Errorf("%s lives %v, want at most 1h", tok.Audience, life)
		}
	}
}

func TestAForgedGrantMintsNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.refused(t, fence.Grant{}, request(), fault.Internal)
}

func TestAStoreThatIsAway(t *testing.T) {
	w := newWorld(t, nil)
	g := w.grant(t, nil)
	w.store.err = errors.New("disk gone")
	w.refused(t, g, request(), fault.DependencyUnavailable)
	w.store.err = binding.ErrNotFound
	w.refused(t, g, request(), fault.StaleLease)
}

func TestACallerThatIsGone(t *testing.T) {
	w := newWorld(t, nil)
	g := w.grant(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.minter.Mint(ctx, g, request()); !fault.Is(err, fault.Cancelled) {
		t.Errorf("error = %v, want cancelled", err)
	}
}

func TestTheAuditLogTellsWhatWasMintedAndNoSecret(t *testing.T) {
	w := newWorld(t, nil)
	tokens, err := w.minter.Mint(t.Context(), w.grant(t, nil), request())
	if err != nil {
		t.Fatal(err)
	}
	log := w.log.String()
	if lines := strings.Count(log, `"msg":"capability minted"`); lines != len(tokens) {
		t.Errorf("%d audit lines for %d tokens", lines, len(tokens))
	}
	for _, tok := range tokens {
		if !strings.Contains(log, tok.ID) {
			t.Errorf("the audit log does not have %s", tok.ID)
		}
		for part := range strings.SplitSeq(tok.Reveal(), ".") {
			if strings.Contains(log, part) {
				t.Errorf("the audit log has a part of the token for %s", tok.Audience)
			}
		}
	}
	for _, value := range []string{bindingID, runID, instance, owner, "user-canary", "handle-1", "fs.read_text_file"} {
		if strings.Contains(log, value) {
			t.Errorf("the audit log has %q in clear: %s", value, log)
		}
	}
}

func TestATokenDoesNotShowItself(t *testing.T) {
	w := newWorld(t, nil)
	tokens, err := w.minter.Mint(t.Context(), w.grant(t, nil), request())
	if err != nil {
		t.Fatal(err)
	}
	w.log.Reset()
	slog.New(slog.NewJSONHandler(w.log, nil)).Info("tokens", "one", tokens[0], "all", tokens)
	out := w.log.String() + strings.Join([]string{sprint("%v", tokens), sprint("%+v", tokens), sprint("%#v", tokens), sprint("%s", tokens[0])}, "\n")
	for _, tok := range tokens {
		if strings.Contains(out, tok.Reveal()[strings.LastIndex(tok.Reveal(), "."):]) {
			t.Errorf("a token shows itself in %s", out)
		}
	}
}
