package rpc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/sqlitestore"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/telemetry"
	capabilitysvc "cofferdam.dev/services/capability"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	bindingID = "hs_0123456789abcdef"
	runID     = "run_1"
	owner     = "replica-1/boot-1"
	instance  = "instance-1"

	tokenEndpoint = "https://sts.example/token" //nolint:gosec // an address
)

// buffer is a log that several goroutines write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// world is the service as it runs, on loopback with mutual TLS, beside a store
// that the control plane writes.
type world struct {
	domain  *identitytest.Domain
	id      spiffeid.ID
	backend *sqlitestore.Store
	writer  *binding.Writer
	cfg     capabilitysvc.Config
	tel     *telemetry.Telemetry
	logger  *slog.Logger
	log     *buffer
	addr    string
	now     func() time.Time // nil is time.Now
	handler atomic.Pointer[http.Handler]
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{domain: identitytest.New(t), log: &buffer{}}
	w.id = w.domain.Service("capability")
	w.logger = slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.cfg = capabilitysvc.Config{
		Base:  service.Base{TrustDomain: identitytest.TrustDomain},
		Store: filepath.Join(dir, "store.db"), KeyFile: filepath.Join(dir, "keys.json"), CreateKey: true, MaxTTL: time.Hour, KeyRotation: 30 * 24 * time.Hour,
		TokenEndpoints: tokenEndpoint,
	}
	var err error
	if w.backend, err = sqlitestore.Open(t.Context(), w.cfg.Store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, w.backend.Close) })
	w.writer = binding.NewWriter(w.backend, time.Now)
	if w.tel, err = telemetry.New(t.Context(), telemetry.Config{Service: "capability", Logger: w.logger}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, func() error { return w.tel.Shutdown(context.Background()) }) }) //nolint:usetesting // the test's context has ended by then
	allow := w.start(t)
	w.listen(t, allow)
	w.insert(t)
	return w
}

func closed(t *testing.T, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// start builds the service from its configuration, also again on the same
// address, as a restart does.
func (w *world) start(t *testing.T) identity.AllowList {
	t.Helper()
	s, err := capabilitysvc.New(t.Context(), w.cfg, capabilitysvc.Deps{Logger: w.logger, Telemetry: w.tel, Now: w.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s.Close) })
	h := s.Handler()
	w.handler.Store(&h)
	return s.Callers()
}

func (w *world) listen(t *testing.T, allow identity.AllowList) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	server := service.HTTPServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { (*w.handler.Load()).ServeHTTP(rw, r) }), w.logger)
	ctx, stop := context.WithCancel(context.Background()) //nolint:usetesting // ends in the clean-up, where it is waited for
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := service.ServeListener(ctx, server, tls.NewListener(l, identity.ServerTLS(w.domain.Source(t, w.id), allow)), time.Second); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
}

// insert commits generation 2 of epoch 1, leased to a sandbox, with a run that
// has ten minutes left.
func (w *world) insert(t *testing.T) {
	t.Helper()
	_, inserted, err := w.backend.Insert(t.Context(), binding.Record{
		ID: bindingID, Epoch: 1, Generation: 2,
		Identity: binding.Identity{Environment: "test", Subject: "user-canary", AgentID: "demo", ConversationID: "c1"},
		Lease:    &binding.Lease{ClaimName: "claim", InstanceUID: instance, State: binding.LeaseBound},
		Run:      &binding.Run{ID: runID, RequestID: "req_1", StartedAt: time.Now(), Deadline: time.Now().Add(10 * time.Minute), Owner: owner},
	})
	if err != nil || !inserted {
		t.Fatalf("insert: %v %v", inserted, err)
	}
}

func (w *world) record(t *testing.T) binding.Record {
	t.Helper()
	r, err := w.backend.Load(t.Context(), bindingID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) http(t *testing.T, src identity.Source) *http.Client {
	t.Helper()
	c := identity.HTTPClient(src, w.id, identity.ClientOptions{})
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (w *world) url(path string) string { return "https://" + w.addr + path }

func (w *world) client(t *testing.T, src identity.Source) capabilityv1connect.CapabilityServiceClient {
	t.Helper()
	c, err := rpc.NewClient(w.http(t, src), w.url(""), w.tel)
	if err != nil {
		t.Fatal(err)
	}
	return capabilityv1connect.NewCapabilityServiceClient(c)
}

func (w *world) controlPlane(t *testing.T) identity.Source {
	t.Helper()
	return w.domain.Source(t, w.domain.Service("controlplane"))
}

// minted counts the audit lines: what was ever signed and handed out.
func (w *world) minted() int { return strings.Count(w.log.String(), `"msg":"capability minted"`) }

func (w *world) request() *capabilityv1.MintRequest {
	return &capabilityv1.MintRequest{
		Envelope: &fencev1.Envelope{
			ProtocolVersion: 1, BindingId: bindingID, Epoch: 1, LeaseGeneration: 2, RunId: runID,
			RequestId: "req_2", IdempotencyKey: "mint_1", Deadline: timestamppb.New(time.Now().Add(time.Minute)),
		},
		Subject: w.domain.Sandbox(instance).String(),
		Owner:   owner,
		Scopes: []*capabilityv1.Scope{
			{Audience: "harness-worker"},
			{Audience: "tool-broker", Tools: []string{"fs.read_text_file"}},
			{Audience: "thread-state"},
			{Audience: "memory", MemoryScopes: []string{"user"}},
			{Audience: "file-broker", Handles: []string{"handle-1"}},
			{Audience: "model-proxy", ModelAlias: "demo"},
		},
	}
}
