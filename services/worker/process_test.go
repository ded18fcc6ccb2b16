package worker_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/waittest"
)

// built is the folder of the worker that the tests start; the first one builds it.
var built struct {
	once   sync.Once
	folder string
	err    error
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(built.folder) // a folder of the system's, for things that may stay behind
		os.Exit(code)
	}))
}

// binary is the worker as it ships.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.folder, built.err = os.MkdirTemp("", "worker-test-"); built.err != nil { //nolint:usetesting // it serves all tests
			return
		}
		build := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "build", "-buildvcs=false", "-o", built.folder, "cofferdam.dev/services/worker/cmd/worker", "cofferdam.dev/services/worker/cmd/runner")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does, so that most of it is there already
		out, err := build.CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	must(t, built.err)
	return filepath.Join(built.folder, "worker")
}

// drain is longer than any test here may take: what ends sooner was ended by the
// worker itself.
const drain = "60s"

// process is a worker as its own process, without environment, and a client that
// is the control plane.
type process struct {
	workerv1connect.WorkerServiceClient

	stand  *rpctest.Stand
	cmd    *exec.Cmd
	log    *lockedBuffer
	digest string
	// held counts the requests that hang in the thread-state facade.
	held   atomic.Int64
	facade string
}

// start starts one and waits until it is ready.
func start(t *testing.T) *process {
	t.Helper()
	p := launch(t)
	waittest.Until(t, "the worker becomes ready", func() bool {
		r, err := p.Ready(t.Context(), &workerv1.ReadyRequest{})
		return err == nil && r.GetReady()
	})
	return p
}

// launch starts one and asks it nothing.
func launch(t *testing.T, more ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{stand: rpctest.NewStand(t), log: &lockedBuffer{}}
	path := binary(t)
	raw, err := os.ReadFile(path)
	must(t, err)
	sum := sha256.Sum256(raw)
	p.digest = "sha256:" + hex.EncodeToString(sum[:])

	sandboxes := identity.AllowList{identity.AnySandbox(p.stand.Domain.TrustDomain())}
	capabilities := p.stand.Serve(t, rpctest.Service{Handler: p.stand.Minter, ID: rpctest.ServiceID("capability"), Allow: sandboxes})
	p.facade = p.stand.Serve(t, rpctest.Service{ID: rpctest.ServiceID("statefacade"), Allow: sandboxes, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p.held.Add(1)
		defer p.held.Add(-1)
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})})

	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		t.Fatal("not a TCP listener")
	}
	inherited, err := tcp.File()
	must(t, err)
	args := append([]string{
		"-listen", "fd://3", "-trust-domain", p.stand.Domain.TrustDomain().Name(), "-workspace", dir,
		"-capability", capabilities, "-issuer", p.stand.Minter.Issuer(), "-drain-timeout", drain, "-log-level", "debug",
	}, append(p.svid(t, dir), more...)...)
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
	p.cmd.Env, p.cmd.Stderr, p.cmd.ExtraFiles = []string{}, p.log, []*os.File{inherited}
	must(t, p.cmd.Start())
	must(t, errors.Join(inherited.Close(), l.Close()))
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // a test that did not end it has failed already
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("log of the worker:\n%s", p.log)
		}
	})
	c := p.stand.Dial(t, "https://"+l.Addr().String(), rpctest.SandboxID(), rpctest.ServiceID("controlplane"))
	p.WorkerServiceClient = workerv1connect.NewWorkerServiceClient(c.RPC)
	return p
}

// svid gives the worker its identity in files.
func (p *process) svid(t *testing.T, dir string) (args []string) {
	t.Helper()
	src := p.stand.Source(t, rpctest.SandboxID())
	svid, err := src.SVID()
	must(t, err)
	cert, key, err := svid.Marshal()
	must(t, err)
	bundle, err := src.Bundle()
	must(t, err)
	authorities, err := bundle.Marshal()
	must(t, err)
	for flag, content := range map[string][]byte{"svid-file": cert, "svid-key-file": key, "bundle-file": authorities} {
		file := filepath.Join(dir, flag)
		must(t, os.WriteFile(file, content, 0o600))
		args = append(args, "-"+flag, file)
	}
	return args
}

// ctx has the capability of the run, or one for the worker's life.
func (p *process) ctx(t *testing.T, runID string) (context.Context, string) {
	t.Helper()
	token := p.stand.Minter.Mint(capability.Claims{
		Audience: capability.HarnessWorker, Subject: rpctest.SandboxID(),
		BindingID: rpctest.BindingID, Epoch: rpctest.Epoch, Generation: rpctest.Generation, RunID: runID,
	})
	return rpc.WithToken(t.Context(), token), token
}

func (p *process) bind(t *testing.T) (token string) {
	t.Helper()
	ready, err := p.Ready(t.Context(), &workerv1.ReadyRequest{})
	must(t, err)
	if ready.GetHarnessId() != "native" || ready.GetWorkerImageDigest() != p.digest || ready.GetBootNonce() == "" || ready.GetBound() {
		t.Fatalf("it says %v", ready)
	}
	endpoint := &workerv1.Endpoint{Address: p.facade, SpiffeId: rpctest.ServiceID("statefacade").String()}
	ctx, token := p.ctx(t, rpctest.RunID)
	_, err = p.Bind(ctx, &workerv1.BindRequest{
		Envelope: p.stand.Envelope().Proto(), ConversationId: "conversation-1",
		Expected: &workerv1.ExpectedWorker{
			HarnessId: "native", AdapterVersion: ready.GetAdapterVersion(), WorkerImageDigest: p.digest, BootNonce: ready.GetBootNonce(),
		},
		Agent: &workerv1.Agent{AgentId: "demo"}, Model: &workerv1.Model{Alias: "main"},
		Endpoints: &workerv1.Endpoints{ToolBroker: endpoint, ThreadState: endpoint, Memory: endpoint, FileBroker: endpoint, ModelProxy: endpoint},
		Limits:    &workerv1.Limits{MaxModelCalls: 1, MaxStateBytes: 1 << 20},
		Tokens:    []*workerv1.CallToken{{Audience: "thread-state", Token: "canary-call-token"}},
	})
	must(t, err)
	return token
}

// run starts a run that hangs in the facade, and gives its terminal once it ends.
func (p *process) run(t *testing.T) <-chan event.Data {
	t.Helper()
	ctx, _ := p.ctx(t, rpctest.RunID)
	stream, err := p.StartRun(ctx, &workerv1.StartRunRequest{
		Envelope: p.stand.Envelope().Proto(), Input: &workerv1.TurnInput{ConversationId: "conversation-1", Message: "hi"},
	})
	must(t, err)
	end := make(chan event.Data, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(end)
		m := event.NewMachine(rpctest.RunID, "conversation-1", event.Bounds{})
		for {
			f, err := stream.Receive()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("the stream broke: %v", err)
				}
				break
			}
			for _, x := range f.GetFrame().GetEvents() {
				e, err := eventproto.FromProto(x)
				if err := errors.Join(err, m.Accept(e)); err != nil {
					t.Error(err)
				}
			}
		}
		if e, ok := m.Terminal(); ok {
			end <- e.Data
		}
		_ = stream.Close() // it has ended
	})
	t.Cleanup(wg.Wait)
	waittest.Until(t, "the run reaches the facade", func() bool { return p.held.Load() == 1 })
	return end
}

// wantExit waits for the end of the process, which must be an orderly one.
func (p *process) wantExit(t *testing.T) {
	t.Helper()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
}

var shutDown = event.RunCancelled{Reason: event.CancelledByShutdown, SideEffectStatus: event.SideEffectsNone}

// A shutdown ends the run, which still says so, and then the process: with 0.
func TestShutdownEndsTheProcess(t *testing.T) {
	p := start(t)
	token := p.bind(t)
	end := p.run(t)
	env := p.stand.Envelope()
	env.RunID = ""
	ctx, lifecycle := p.ctx(t, "")
	_, err := p.Shutdown(ctx, &workerv1.ShutdownRequest{Envelope: env.Proto()})
	must(t, err)
	if got := <-end; got != shutDown {
		t.Errorf("the run ended by %#v", got)
	}
	p.wantExit(t)
	for _, secret := range []string{token, lifecycle, "canary-call-token"} {
		if strings.Contains(p.log.String(), secret) {
			t.Error("a token stands in the log")
		}
	}
}

// So does the signal, at once: a run that is streamed is not waited for.
func TestSignalEndsTheProcess(t *testing.T) {
	p := start(t)
	p.bind(t)
	end := p.run(t)
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if got := <-end; got != shutDown {
		t.Errorf("the run ended by %#v", got)
	}
	p.wantExit(t)
}

// A cancel is answered once the run has really stopped: its terminal is there, and
// nothing is asked of the brokers any more. The worker goes on.
// In a pod a worker that is told to end has not done what it was for: a pod of which all containers say
// that they have is told of as that, whatever it was evicted for.
func TestASignalInAPod(t *testing.T) {
	log := filepath.Join(t.TempDir(), "termination-log")
	must(t, os.WriteFile(log, nil, 0o600))
	p := launch(t, "-termination-log", log)
	waittest.Until(t, "the worker becomes ready", func() bool {
		r, err := p.Ready(t.Context(), &workerv1.ReadyRequest{})
		return err == nil && r.GetReady()
	})
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if err := p.cmd.Wait(); p.cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("ended with %v, want exit code 143", err)
	}
	if said, err := os.ReadFile(log); err != nil || len(said) > 0 {
		t.Errorf("its last words are %q, %v", said, err)
	}
}

func TestCancelStopsTheRun(t *testing.T) {
	p := start(t)
	p.bind(t)
	end := p.run(t)
	ctx, _ := p.ctx(t, "")
	c, err := p.CancelRun(ctx, &workerv1.CancelRunRequest{Envelope: p.stand.Envelope().Proto(), Reason: "client_request"})
	must(t, err)
	if !c.GetActive() || !c.GetStopped() {
		t.Errorf("it says %v", c)
	}
	want := event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsNone}
	if got := <-end; got != want {
		t.Errorf("the run ended by %#v", got)
	}
	waittest.Until(t, "the facade is asked no more", func() bool { return p.held.Load() == 0 })
	ready, err := p.Ready(t.Context(), &workerv1.ReadyRequest{})
	must(t, err)
	if !ready.GetReady() || !ready.GetBound() {
		t.Errorf("it says %v", ready)
	}
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.wantExit(t)
}

// A control plane that goes away takes its run with it, and the next one finds the
// worker free.
func TestLostControlPlaneEndsTheRun(t *testing.T) {
	p := start(t)
	p.bind(t)
	ctx, _ := p.ctx(t, rpctest.RunID)
	ctx, gone := context.WithCancel(ctx)
	stream, err := p.StartRun(ctx, &workerv1.StartRunRequest{
		Envelope: p.stand.Envelope().Proto(), Input: &workerv1.TurnInput{ConversationId: "conversation-1", Message: "hi"},
	})
	must(t, err)
	_, err = stream.Receive()
	must(t, err)
	waittest.Until(t, "the run reaches the facade", func() bool { return p.held.Load() == 1 })
	gone()
	_ = stream.Close() // its context has ended
	waittest.Until(t, "the run ends", func() bool {
		ctx, _ := p.ctx(t, "")
		c, err := p.CancelRun(ctx, &workerv1.CancelRunRequest{Envelope: p.stand.Envelope().Proto(), Reason: "disconnect"})
		return err == nil && c.GetStopped()
	})
	waittest.Until(t, "the facade is asked no more", func() bool { return p.held.Load() == 0 })
	must(t, p.cmd.Process.Signal(os.Interrupt))
	p.wantExit(t)
}

// A worker that no control plane asks anything has none, and ends by itself: with 0.
// It is not waited for with a question, which would keep it.
func TestAForgottenWorkerEnds(t *testing.T) {
	p := launch(t, "-unbound-timeout", "500ms")
	p.wantExit(t)
	if log := p.log.String(); !strings.Contains(log, "nobody has bound") {
		t.Errorf("the log does not say why:\n%s", log)
	}
}

// What is wrong with the configuration is said, and nothing is served.
func TestStartFails(t *testing.T) {
	p := start(t)
	args := p.cmd.Args[1:]
	with := func(flag, value string) []string { return append(append([]string{}, args...), "-"+flag, value) }
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such harness":   {with("harness", "strands"), "there are [native scripted]"},
		"no workspace":      {with("workspace", "/nonexistent/workspace"), "workspace"},
		"a file as one":     {with("workspace", "/proc/self/exe"), "not a folder"},
		"an odd capability": {with("capability", "http://x"), "--capability"},
		"another domain":    {with("trust-domain", "elsewhere.example"), "trust domain"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			cmd := exec.CommandContext(t.Context(), p.cmd.Path, c.args...)
			cmd.Env, cmd.Stderr = []string{}, &log
			if err := cmd.Run(); err == nil || !strings.Contains(log.String(), c.want) {
				t.Errorf("%v: %s", err, log.String())
			}
		})
	}
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.wantExit(t)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
