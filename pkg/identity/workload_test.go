package identity_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
	"cofferdam.dev/pkg/waittest"
)

// agent is a Workload API that says what a test tells it to, one answer per step.
type agent struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	path  string
	steps chan step
	grpc  *grpc.Server
}

// step is an answer on the stream, or the error that ends it.
type step struct {
	response *workload.X509SVIDResponse
	err      error
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{path: filepath.Join(t.TempDir(), "agent.sock"), steps: make(chan step, 8)}
	a.start(t)
	t.Cleanup(func() { a.grpc.Stop() })
	return a
}

func (a *agent) start(t *testing.T) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", a.path)
	if err != nil {
		t.Fatal(err)
	}
	a.grpc = grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(a.grpc, a)
	server := a.grpc
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
}

func (a *agent) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	for {
		select {
		case s := <-a.steps:
			if s.err != nil {
				return s.err
			}
			if err := stream.Send(s.response); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// push makes the agent send the present state of sources, the first of which is the default identity.
func (a *agent) push(t *testing.T, sources ...*identitytest.Source) {
	t.Helper()
	response := &workload.X509SVIDResponse{}
	for _, src := range sources {
		svid, errSVID := src.SVID()
		bundle, errBundle := src.Bundle()
		if err := errors.Join(errSVID, errBundle); err != nil {
			t.Fatal(err)
		}
		certs, key, err := svid.MarshalRaw()
		if err != nil {
			t.Fatal(err)
		}
		response.Svids = append(response.Svids, &workload.X509SVID{
			SpiffeId: svid.ID.String(), X509Svid: certs, X509SvidKey: key, Bundle: raw(bundle.X509Authorities()),
		})
	}
	a.steps <- step{response: response}
}

func (a *agent) fail(code codes.Code) { a.steps <- step{err: status.Error(code, "by the test")} }

func (a *agent) config() identity.Config { return identity.Config{WorkloadAPI: "unix://" + a.path} }

func (a *agent) open(t *testing.T, config identity.Config) identity.Source {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	src, err := identity.Open(ctx, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

func raw(certs []*x509.Certificate) []byte {
	var der []byte
	for _, c := range certs {
		der = append(der, c.Raw...)
	}
	return der
}

func TestWorkloadAPIFollowsRotation(t *testing.T) {
	domain := identitytest.New(t)
	want := domain.Source(t, domain.Sandbox("i-1"))
	a := newAgent(t)
	a.push(t, want)
	src := a.open(t, a.config())
	if src.ID() != want.ID() || !same(t, src, want) {
		t.Fatalf("opened as %q", src.ID())
	}
	for _, rotate := range []func(testing.TB){domain.Rotate, domain.RotateCA, domain.ForgetOldCAs} {
		rotate(t)
		a.push(t, want)
		waittest.Until(t, "a rotation", func() bool { return same(t, src, want) })
	}
}

// After a rotation agents elsewhere could not fetch an identity any more, and long streams broke. Whatever the Workload
// API answers, and while it is away, the source keeps what it has, and takes the next rotation.
func TestWorkloadAPIWatchNeverEnds(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Canceled, codes.InvalidArgument, codes.PermissionDenied, codes.Unavailable, codes.Internal, codes.DeadlineExceeded,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			domain := identitytest.New(t)
			want := domain.Source(t, domain.Sandbox("i-1"))
			a := newAgent(t)
			a.fail(code)
			a.push(t, want)
			src := a.open(t, a.config())
			a.fail(code)
			domain.RotateCA(t)
			if same(t, src, want) || src.ID() != want.ID() {
				t.Error("the test rotates nothing")
			}
			a.push(t, want)
			waittest.Until(t, "the rotation after an error", func() bool { return same(t, src, want) })
		})
	}
	t.Run("restart", func(t *testing.T) {
		t.Parallel()
		domain := identitytest.New(t)
		want := domain.Source(t, domain.Sandbox("i-1"))
		a := newAgent(t)
		a.push(t, want)
		src := a.open(t, a.config())
		a.grpc.Stop()
		if !same(t, src, want) {
			t.Error("the identity went with the agent")
		}
		domain.RotateCA(t)
		a.start(t)
		a.push(t, want)
		waittest.Until(t, "the rotation after a restart", func() bool { return same(t, src, want) })
	})
}

func TestWorkloadAPICannotChangeTheIdentity(t *testing.T) {
	domain := identitytest.New(t)
	want := domain.Source(t, domain.Sandbox("i-1"))
	thief := domain.Source(t, domain.Service("controlplane"))
	a := newAgent(t)
	a.push(t, want)
	src := a.open(t, a.config())
	before := want.Frozen()
	domain.Rotate(t)
	a.push(t, thief)
	a.push(t, thief, want) // read after the other one; the default is not the one that is taken
	waittest.Until(t, "the rotation", func() bool { return same(t, src, want) || !sameSVID(t, src, before) })
	if !same(t, src, want) || src.ID() != want.ID() {
		t.Errorf("the source became somebody else")
	}
}

func TestWorkloadAPIPicksTheIdentityThatIsMeant(t *testing.T) {
	domain := identitytest.New(t)
	first := domain.Source(t, domain.Service("other"))
	want := domain.Source(t, domain.Service("toolbroker"))
	a := newAgent(t)
	config := a.config()
	config.ID = want.ID()
	a.push(t, first) // not registered yet
	a.push(t, first, want)
	if src := a.open(t, config); src.ID() != want.ID() || !same(t, src, want) {
		t.Errorf("opened as %q", src.ID())
	}
}

// told ends a wait when the source has said why there is nothing yet, however long that took.
type told context.CancelFunc

func (f told) Write(line []byte) (int, error) { f(); return len(line), nil }

func TestWorkloadAPIOpenIsBounded(t *testing.T) {
	domain := identitytest.New(t)
	silent := newAgent(t)
	refusing := newAgent(t)
	for range cap(refusing.steps) {
		refusing.fail(codes.PermissionDenied)
	}
	another := newAgent(t)
	another.push(t, domain.Source(t, domain.Service("other")))
	wants := another.config()
	wants.ID = domain.Service("toolbroker")
	for name, tc := range map[string]struct {
		config identity.Config
		wait   time.Duration
		reason string
	}{
		"no socket":        {identity.Config{WorkloadAPI: "unix://" + filepath.Join(t.TempDir(), "none.sock")}, patience, "none.sock"},
		"silent":           {silent.config(), 300 * time.Millisecond, ""},
		"refusing":         {refusing.config(), patience, "PermissionDenied"},
		"another identity": {wants, patience, "/svc/other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), tc.wait)
			defer cancel()
			src, err := identity.Open(ctx, tc.config, slog.New(slog.NewTextHandler(told(cancel), nil)))
			if err == nil {
				_ = src.Close()
				t.Fatal("opened")
			}
			want := context.Canceled
			if tc.reason == "" {
				want = context.DeadlineExceeded
			}
			if !errors.Is(err, want) || !strings.Contains(err.Error(), tc.reason) {
				t.Errorf("got %v, want %v and %q", err, want, tc.reason)
			}
		})
	}
}
