package rpc

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/fault"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand serves next behind the door and the watch.
func stand(t *testing.T, next http.HandlerFunc) (*rpctest.Stand, func(context.Context) (int, error)) {
	t.Helper()
	return standWith(t, 100, next)
}

func standWith(t *testing.T, most int, next http.HandlerFunc) (*rpctest.Stand, func(context.Context) (int, error)) {
	t.Helper()
	s := rpctest.NewStand(t)
	srv := pkgrpc.NewServer(s.RPC(), nil)
	callers := Callers(rpctest.SandboxID().TrustDomain())
	srv.HandleHTTP("POST /x", pkgrpc.Policy{Callers: callers, Audience: capability.ModelProxy, Fence: pkgrpc.RunFence},
		newRuns(s.Guard(), 5*time.Millisecond, most).watched(next))
	h, err := srv.Handler()
	if err != nil {
		t.Fatal(err)
	}
	id := rpctest.ServiceID("modelproxy")
	c := s.Dial(t, s.Serve(t, rpctest.Service{Handler: h, ID: id, Allow: callers}), id, rpctest.SandboxID())
	claims := capabilitytest.Claims(capability.ModelProxy, rpctest.SandboxID())
	claims.BindingID, claims.Epoch, claims.Generation, claims.RunID = s.BindingID, rpctest.Epoch, rpctest.Generation, s.RunID
	token := s.Minter.Mint(claims)
	return s, func(ctx context.Context) (int, error) {
		env, err := pkgrpc.EncodeEnvelope(s.Envelope())
		if err != nil {
			return 0, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL+"/x", strings.NewReader("{}"))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set(pkgrpc.EnvelopeHeader, env)
		res, err := c.HTTP.Do(req)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
}

// A stream of a replaced lease ends, also when its model goes on.
func TestACallEndsWithItsLease(t *testing.T) {
	began := make(chan struct{})
	ended := make(chan error, 1)
	s, call := stand(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
	})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = call(context.WithoutCancel(t.Context())) // what it is answered is not the point
	}()
	<-began
	s.Replace(t)
	if err := <-ended; !fault.Is(err, fault.StaleLease) {
		t.Errorf("the call ended with %v, want stale_lease", err)
	}
	<-answered
}

// One run cannot take every slot.
func TestCallsOfOneRunAreBounded(t *testing.T) {
	var in atomic.Int64
	proceed := make(chan struct{})
	full := make(chan struct{})
	_, call := stand(t, func(w http.ResponseWriter, _ *http.Request) {
		if in.Add(1) == atOncePerRun {
			close(full)
		}
		<-proceed
		w.WriteHeader(http.StatusNoContent)
	})
	done := make(chan int, atOncePerRun)
	for range atOncePerRun {
		go func() {
			status, err := call(context.WithoutCancel(t.Context()))
			if err != nil {
				status = 0
			}
			done <- status
		}()
	}
	<-full
	if status, err := call(t.Context()); err != nil || status != http.StatusTooManyRequests {
		t.Errorf("one more call: %d, %v; want 429", status, err)
	}
	close(proceed)
	for range atOncePerRun {
		if status := <-done; status != http.StatusNoContent {
			t.Errorf("status = %d", status)
		}
	}
	if status, err := call(t.Context()); err != nil || status != http.StatusNoContent {
		t.Errorf("afterwards: %d, %v", status, err)
	}
}

// A run has so many calls and no more, however far apart they are.
func TestAllCallsOfOneRunAreBounded(t *testing.T) {
	_, call := standWith(t, 3, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for n := range 5 {
		want := http.StatusNoContent
		if n >= 3 {
			want = http.StatusForbidden // which agents do not repeat
		}
		if status, err := call(t.Context()); err != nil || status != want {
			t.Errorf("call %d: %d, %v; want %d", n, status, err, want)
		}
	}
}

// Runs are forgotten after their deadline, and not before: an idle run must not
// begin to count anew.
func TestRunsAreForgottenAfterTheirDeadline(t *testing.T) {
	now := time.Now()
	r := newRuns(nil, 0, 2)
	r.now = func() time.Time { return now }
	must := func(runID string, want bool) {
		t.Helper()
		err := r.enter(runID, now.Add(time.Hour))
		if (err == nil) != want || err != nil && !fault.Is(err, fault.AccessDenied) {
			t.Errorf("%s: %v", runID, err)
		}
		if err == nil {
			r.leave(runID)
		}
	}
	must("a", true)
	must("a", true)
	now = now.Add(59 * time.Minute)
	must("a", false)
	now = now.Add(2 * time.Minute)
	must("b", true)
	if len(r.run) != 1 {
		t.Errorf("%d runs are kept", len(r.run))
	}
}
