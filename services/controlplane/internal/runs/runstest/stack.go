package runstest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.opentelemetry.io/otel/metric/noop"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/agentfiles"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Caller of most tests.
func Caller() runs.Caller { return runs.Caller{Subject: "user-1", Organization: "default"} }

// Stack is the control plane's domain without its wires.
type Stack struct {
	Runs     *runs.Service
	Agents   *agents.Registry
	Writer   *binding.Writer
	Guard    *fence.Guard
	Provider *Provider
	Workers  *Workers
	Files    *Files
}

// Options of a Stack. Zero values are defaults.
type Options struct {
	Backend binding.Backend
	Owner   string
	// Agents keeps the versions of agents; another stack on it knows them too.
	Agents agents.Store
	// Beside is a stack whose sandboxes and workers this one shares: another replica.
	Beside *Stack
	// Life, where it is not nil, ends at one of its writes.
	Life *Life
	// Minter takes the place of the one that mints whatever it is asked for.
	Minter lease.Minter
	// Now is the clock of the replica; nil is the machine's.
	Now func() time.Time
	// RunTimeout of the agent "demo", in seconds.
	RunTimeout uint32
	// Catalogue in place of the agent "demo", as JSON.
	Catalogue string
	// Folder has the skills and files of its agents.
	Folder string
	// Contents keeps them; nil is one of this stack.
	Contents *agentstoretest.Contents
	// Change edits the configuration before the service is made.
	Change func(*runs.Config)
}

// New makes a Stack whose reconciler runs until the test ends.
func New(t *testing.T, script Script, o Options) *Stack {
	t.Helper()
	s := Make(t, script, o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Runs.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("runs.Run: %v", err)
		}
		if err := s.Provider.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Make makes a Stack whose reconciler the test runs itself.
func Make(t *testing.T, script Script, o Options) *Stack {
	t.Helper()
	if o.Backend == nil {
		o.Backend = bindingtest.NewMemory()
	}
	if o.Owner == "" {
		o.Owner = "cp-test"
	}
	if o.Minter == nil {
		o.Minter = Minter{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Catalogue == "" {
		o.Catalogue = `{"agents":[{"agent_id":"demo","version":1,"name":"Demo","organization":"default","harness":"native",` +
			`"adapter_version":"1.0.0","harness_options":{},"model_alias":"demo","prompt":"","tools":[],"profile":"default",` +
			`"limits":{"run_timeout_seconds":` + seconds(o.RunTimeout) + `,"max_model_calls":4,"max_tool_calls":4,"max_output_tokens":0}}]}`
	}
	drafts, err := agents.Parse([]byte(o.Catalogue), agentfiles.In(o.Folder))
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	if o.Agents == nil {
		o.Agents = &agentstoretest.Memory{}
	}
	if o.Contents == nil {
		o.Contents = &agentstoretest.Contents{}
	}
	registry := agents.NewRegistry(o.Agents, Harness(t), o.Contents, logger, time.Now)
	if err := registry.Seed(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	ids, err := binding.NewIDs([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	td := spiffeid.RequireTrustDomainFromString("cofferdam.local")
	s := &Stack{Agents: registry, Provider: NewProvider(td), Workers: NewWorkers(script), Files: &Files{}}
	if o.Beside != nil {
		s.Provider, s.Workers = o.Beside.Provider, o.Beside.Workers
	} else {
		s.Provider.onGone = s.Workers.Gone
	}
	var provider sandbox.Provider = s.Provider
	var workers worker.Dialer = s.Workers
	if o.Life != nil {
		o.Backend, provider, workers = mortalStore{o.Backend, o.Life}, mortalProvider{provider, o.Life}, mortalDialer{workers, o.Life}
	}
	s.Writer = binding.NewWriter(o.Backend, o.Now)
	s.Guard = fence.NewGuard(s.Writer, o.Now)
	cfg := runs.Config{
		Writer: s.Writer, Guard: s.Guard, IDs: ids, Agents: registry, Provider: provider, Files: s.Files, Environment: "test", Owner: o.Owner, Now: o.Now,
		Bounds: event.DefaultBounds(), Logger: logger, Meter: noop.NewMeterProvider().Meter("test"),
		BeatEvery: 20 * time.Millisecond, TakeOverAfter: 100 * time.Millisecond, ReconcileEvery: 20 * time.Millisecond,
		CancelGrace: 10 * time.Second, // only who does not stop is waited for so long
		Leases: lease.New(lease.Config{
			Writer: s.Writer, Guard: s.Guard, Provider: provider, Workers: workers, Minter: o.Minter, Tools: noTools{}, Contents: o.Contents,
			TrustDomain: td, Owner: o.Owner, Logger: logger,
		}),
	}
	if o.Change != nil {
		o.Change(&cfg)
	}
	if s.Runs, err = runs.New(cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// Commit does what the state facade does at the end of a turn: it moves the
// head and ends the run as success.
func (s *Stack) Commit(ctx context.Context, p *Play, ref string) error {
	return s.commit(ctx, p, ref, nil)
}

// Interrupt does the same for a run that waits for a person.
func (s *Stack) Interrupt(ctx context.Context, p *Play, ref string, asks event.InterruptRequested) error {
	body, err := event.InterruptBody(asks)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	return s.commit(ctx, p, ref, &binding.Interrupt{ID: asks.InterruptID, Hash: hex.EncodeToString(sum[:])})
}

func (s *Stack) commit(ctx context.Context, p *Play, ref string, i *binding.Interrupt) error {
	g, err := s.Guard.Admit(ctx, p.Turn.Envelope)
	if err != nil {
		return err
	}
	rec, err := s.Writer.Backend().Load(ctx, p.Turn.Envelope.BindingID)
	if err != nil {
		return err
	}
	_, _, err = s.Writer.CommitHead(ctx, g, binding.HeadCommit{
		ExpectedRevision: rec.Head.Revision, Codec: "test", CodecVersion: 1, SnapshotRef: ref,
		SHA256: ref, IdempotencyDigest: ref, LastSequence: p.LastSequence(), Interrupt: i,
	})
	return err
}

// Record of the binding that a run belongs to.
func (s *Stack) Record(t *testing.T, bindingID string) binding.Record {
	t.Helper()
	r, err := s.Writer.Backend().Load(t.Context(), bindingID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Harness is the one of all workers, and what agents are checked by.
func Harness(t *testing.T) *harnesses.Catalogue {
	t.Helper()
	e, err := harnesses.Parse("default", true, HarnessID, []byte(`{"harness_id":"native","adapter_version":"1.0.0","contract_versions":[1],"execution_mode":"sandbox_pod",`+
		`"options_schema":{"type":"object","properties":{"temperature":{"type":"number","maximum":2},"effort":{"enum":["low","high"]}},"additionalProperties":false},`+
		`"capabilities":{"stream.text":{"level":"native"},"tool.mcp":{"level":"emulated","constraints":"through the ToolBroker"},`+
		`"skills":{"level":"emulated"},"memory.shared_policy":{"level":"unsupported","reason":"it has none"},"interrupt.tool_approval":{"level":"unavailable"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return harnesses.New(e)
}

func seconds(n uint32) string {
	if n == 0 {
		n = 60
	}
	return strconv.FormatUint(uint64(n), 10)
}

// Minter mints whatever it is asked for.
type Minter struct{}

// jti of a token that Minter made.
func jti(token string) string { return "jti-of-" + token }

// Mint implements lease.Minter.
func (Minter) Mint(_ context.Context, env fence.Envelope, subject, _ string, scopes []lease.Scope) ([]worker.Token, error) {
	out := make([]worker.Token, len(scopes))
	for i, sc := range scopes {
		token := strings.Join([]string{string(sc.Audience), subject, env.RunID}, "/")
		out[i] = worker.Token{Audience: string(sc.Audience), Token: token, ID: jti(token)}
	}
	return out, nil
}

type noTools struct{}

func (noTools) ListTools(context.Context, []string) ([]worker.Tool, []string, error) {
	return nil, nil, nil
}
