package host_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/sandbox/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds a wait for something that must come.
const patience = 30 * time.Second

// machine is a host and what it serves. It can be away for a while.
type machine struct {
	provider *runstest.Provider
	host     *host.Host
	server   *httptest.Server
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{provider: runstest.NewProvider(spiffeid.RequireTrustDomainFromString("cofferdam.test"))}
	described, err := harnesses.Parse("local", true, "native", []byte(`{"harness_id":"native","adapter_version":"1.0.0","contract_versions":[1],`+
		`"execution_mode":"sandbox_pod","options_schema":{"type":"object"},"capabilities":{"skills":{"level":"emulated"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	m.host, err = host.New(m.provider, map[string]string{"toolbroker": "unix:///run/toolbroker.sock"}, harnesses.New(described), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	go func() {
		defer close(running)
		m.host.Run(context.WithoutCancel(t.Context()))
	}()
	t.Cleanup(func() {
		if err := m.provider.Close(); err != nil {
			t.Error(err)
		}
		<-running
	})
	m.serve(t, "127.0.0.1:0")
	return m
}

func (m *machine) serve(t *testing.T, address string) {
	t.Helper()
	// Somebody may call from a port that was free for a moment.
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	for until := time.Now().Add(patience); err != nil && time.Now().Before(until); l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address) {
		<-time.After(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: m.host.Handler(), ReadHeaderTimeout: patience}}
	m.server.Start()
}

// away ends the server and every connection to it, also one that comes meanwhile; it
// gives its address.
func (m *machine) away() string {
	closed := make(chan struct{})
	go func() { defer close(closed); m.server.Close() }()
	for {
		m.server.CloseClientConnections()
		select {
		case <-closed:
			return m.server.Listener.Addr().String()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (m *machine) dial(t *testing.T) *host.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := host.Dial(ctx, &http.Client{Transport: &http.Transport{}}, "http://"+m.server.Listener.Addr().String(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.server.CloseClientConnections()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func claimed(name string) sandbox.Claim {
	return sandbox.Claim{Name: name, Profile: "local", Harness: "native"}
}

// Any replica finds the instance that another one claimed, and ends it.
func TestReplicasShareSandboxes(t *testing.T) {
	m := newMachine(t)
	defer func() { m.away() }()
	a, b := m.dial(t), m.dial(t)
	if got := a.Address("toolbroker"); got != "unix:///run/toolbroker.sock" {
		t.Errorf("address = %q", got)
	}
	if e, ok := a.Describe(t.Context()).For("native", "local"); !ok || e.AdapterVersion != "1.0.0" || e.CheckOptions(nil) != nil {
		t.Errorf("described as %+v, %v", e, ok)
	}
	if !slices.Equal(a.Weaknesses(), m.provider.Weaknesses()) {
		t.Errorf("weaknesses = %q", a.Weaknesses())
	}
	first, err := a.Claim(t.Context(), claimed("hc-1"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Claim(t.Context(), claimed("hc-1"))
	if err != nil || again != first || m.provider.Made() != 1 {
		t.Errorf("the same claim: %+v, %v; want %+v", again, err, first)
	}
	if all, err := b.List(t.Context()); err != nil || len(all) != 1 || all[0] != first {
		t.Errorf("listed: %+v, %v", all, err)
	}
	if alive, err := b.Alive(t.Context(), "hc-1", first.UID); err != nil || !alive {
		t.Errorf("alive: %v, %v", alive, err)
	}
	if alive, err := b.Alive(t.Context(), "hc-1", "another"); err != nil || alive {
		t.Errorf("another instance of the claim is alive: %v, %v", alive, err)
	}
	for range 2 {
		if err := b.Release(t.Context(), "hc-1"); err != nil {
			t.Fatal(err)
		}
	}
	if alive, err := a.Alive(t.Context(), "hc-1", first.UID); err != nil || alive {
		t.Errorf("released by another: %v, %v", alive, err)
	}
}

// What a provider answers, and after how long to ask again, arrives as it was said.
func TestAnErrorArrives(t *testing.T) {
	m := newMachine(t)
	defer func() { m.away() }()
	c := m.dial(t)
	m.provider.Refuse(fault.New(fault.SandboxCapacity, "test", fault.RetryAfter(5*time.Second)))
	_, err := c.Claim(t.Context(), claimed("hc-1"))
	if f := fault.From(err, "test"); f.Code() != fault.SandboxCapacity || f.RetryAfter() != 5*time.Second {
		t.Errorf("refused with %v, again after %v", err, f.RetryAfter())
	}
	if err := c.Room(t.Context(), claimed("hc-1")); err != nil {
		t.Errorf("room, as far as is known: %v", err)
	}
	m.provider.Full(fault.New(fault.SandboxCapacity, "test", fault.RetryAfter(5*time.Second)))
	if f := fault.From(c.Room(t.Context(), claimed("hc-1")), "test"); f.Code() != fault.SandboxCapacity || f.RetryAfter() != 5*time.Second {
		t.Errorf("no room: %v, again after %v", f, f.RetryAfter())
	}
}

// Each replica is told of each exit, also after it lost its connection.
func TestEachReplicaIsToldOfAnExit(t *testing.T) {
	m := newMachine(t)
	defer func() { m.away() }()
	a, b := m.dial(t), m.dial(t)
	tell := func(name string) {
		in, err := a.Claim(t.Context(), claimed(name))
		if err != nil {
			t.Fatal(err)
		}
		// A stream that does not stand yet is told nothing: it is asked until it does.
		for _, c := range []*host.Client{a, b} {
			deadline := time.After(patience)
			for told := false; !told; {
				m.provider.Exceed(name, sandbox.LimitMemory)
				select {
				case e := <-c.Exits():
					told = e == sandbox.Exit{ClaimName: name, UID: in.UID, Limit: sandbox.LimitMemory}
				case <-time.After(10 * time.Millisecond):
					if in, err = a.Claim(t.Context(), claimed(name)); err != nil {
						t.Fatal(err)
					}
				case <-deadline:
					t.Fatalf("%s: never told", name)
				}
			}
		}
	}
	tell("hc-1")
	m.serve(t, m.away())
	tell("hc-2")
}

// A host that is started again holds claims up and fails none; what it had is gone,
// which it says.
func TestAHostThatIsAwayHoldsClaimsUp(t *testing.T) {
	m := newMachine(t)
	defer func() { m.away() }()
	c := m.dial(t)
	address := m.away()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Claim(short, claimed("hc-1")); !fault.Is(err, fault.DependencyUnavailable) && !fault.Is(err, fault.DeadlineExceeded) {
		t.Errorf("while it is away: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := c.Claim(ctx, claimed("hc-1"))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("answered by nobody: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	m.serve(t, address)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAHostRefusesWhatIsNoClaim(t *testing.T) {
	m := newMachine(t)
	defer func() { m.away() }()
	for _, body := range []string{
		``, `{`, `[]`, `{"name":"x","profile":"p","harness":"h","more":1}`, `{"name":"","profile":"p","harness":"h"}`,
		`{"name":"../x","profile":"p","harness":"h"}`, `{"name":"x"}{}`, `{"name":"` + strings.Repeat("x", 8<<10) + `"}`,
	} {
		rec := httptest.NewRecorder()
		m.host.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/claims", strings.NewReader(body)))
		if rec.Code/100 != 4 {
			t.Errorf("%.40q: status %d", body, rec.Code)
		}
	}
	if m.provider.Made() != 0 {
		t.Errorf("%d sandboxes were made", m.provider.Made())
	}
}
