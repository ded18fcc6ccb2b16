package rpc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// each runs a test on both wires.
func each(t *testing.T, f func(t *testing.T, on func(*rpctest.Client) wire)) {
	t.Helper()
	for name, on := range wires {
		t.Run(name, func(t *testing.T) { f(t, on) })
	}
}

// Every event carries the envelope, the capability that bound the worker, and its
// boot nonce.
func TestStream(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := bound(t, rpctest.NewStand(t)).dial(t, on)
		req := startRequest(c.stand.Envelope(), "hi")
		got := c.read(t, req)
		want, err := fence.FromProto(req.GetEnvelope())
		must(t, err)
		for _, r := range got {
			if r.Envelope != want || r.CapabilityJTI != "jti-of-bind" || r.BootNonce != nonce {
				t.Errorf("%+v", r)
			}
		}
		if types := typesOf(got); types != "run.started text.started text.delta text.finished run.error" {
			t.Errorf("events: %s", types)
		}
	})
}

func typesOf(got []received) string {
	var out []string
	for _, r := range got {
		out = append(out, string(r.Event.Type()))
	}
	return strings.Join(out, " ")
}

func TestStartAgain(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := running(t, rpctest.NewStand(t)).dial(t, on)
		again := func(message string) error {
			return c.start(c.ctx(t), startRequest(c.stand.Envelope(), message), func(received) { t.Error("an event came") })
		}
		wantCode(t, again("hi"), fault.AlreadyRunning)
		wantCode(t, again("something else"), fault.IdempotencyConflict)
		env := c.stand.Envelope()
		answer, err := c.cancel(c.ctx(t), &workerv1.CancelRunRequest{Envelope: env.Proto(), Reason: "client_request"})
		must(t, err)
		if !answer.GetActive() {
			t.Error("the run was not active")
		}
		waittest.Until(t, "the run stops", func() bool {
			answer, err = c.cancel(c.ctx(t), &workerv1.CancelRunRequest{Envelope: env.Proto(), Reason: "client_request"})
			return err != nil || answer.GetStopped()
		})
		must(t, err)
		var terminals []event.Event
		must(t, c.start(c.ctx(t), startRequest(c.stand.Envelope(), "hi"), func(r received) { terminals = append(terminals, r.Event) }))
		want := event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsNone}
		if len(terminals) != 1 || terminals[0].Data != want {
			t.Errorf("the run was answered with %+v", terminals)
		}
		wantCode(t, again("something else"), fault.IdempotencyConflict)
		if n := c.adapter.streams.Load(); n != 1 {
			t.Errorf("the harness ran %d times", n)
		}
	})
}

// A stale start is a real 409, before any byte of a stream.
func TestStaleStartOverHTTP(t *testing.T) {
	c := bound(t, rpctest.NewStand(t)).dial(t, newHTTPWire)
	env := c.stand.Envelope()
	env.Generation++
	body, err := workerclient.ToJSON(startRequest(env, "hi"))
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.client.BaseURL+"/internal/v1/runs:start", bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+c.token(env))
	res, err := c.client.HTTP.Do(req)
	must(t, err)
	text, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	f, ok := fault.ReadHTTP(text)
	if res.StatusCode != http.StatusConflict || res.Header.Get("Content-Type") != "application/json" || !ok || f.Code() != fault.StaleLease {
		t.Errorf("%d %s: %s", res.StatusCode, res.Header.Get("Content-Type"), text)
	}
	if c.adapter.streams.Load() != 0 {
		t.Error("the harness ran")
	}
}

// A run ends with the stream that carries it: a caller that goes away cancels it,
// also while nothing is emitted.
func TestDisconnect(t *testing.T) {
	var emitted atomic.Int64
	for name, s := range map[string]script{"silent": waits, "busy": floods(&emitted)} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
				c := bound(t, rpctest.NewStand(t)).dial(t, on)
				c.adapter.play(s)
				ctx, gone := context.WithCancel(c.ctx(t))
				defer gone()
				err := c.start(ctx, startRequest(c.stand.Envelope(), "hi"), func(received) { gone() })
				if err == nil {
					t.Error("the stream ended cleanly")
				}
				waittest.Until(t, "the harness ends", func() bool { return c.adapter.ended.Load() == 1 })
				// Only now is its terminal asked for.
				var end event.Data
				waittest.Until(t, "the run has its terminal", func() bool {
					end = nil
					err := c.start(c.ctx(t), startRequest(c.stand.Envelope(), "hi"), func(r received) { end = r.Event.Data })
					return err == nil
				})
				want := event.RunCancelled{Reason: event.CancelledByDisconnect, SideEffectStatus: event.SideEffectsNone}
				if end != want {
					t.Errorf("the run ended by %#v", end)
				}
			})
		})
	}
}

// A deadline ends the run by itself, and the stream still says how.
func TestDeadline(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := bound(t, rpctest.NewStand(t)).dial(t, on)
		c.adapter.play(waits)
		env := c.stand.Envelope()
		env.Deadline = time.Now().Add(3 * time.Second)
		got := c.read(t, startRequest(env, "hi"))
		want := event.RunCancelled{Reason: event.CancelledByDeadline, SideEffectStatus: event.SideEffectsNone}
		if end := got[len(got)-1].Event.Data; end != want || time.Now().Before(env.Deadline) {
			t.Errorf("the run ended by %#v", end)
		}
	})
}

// A harness that does not stop at the deadline holds the stream no longer than
// the grace.
func TestDeadlineOfAHarnessThatGoesOn(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		w := bound(t, rpctest.NewStand(t))
		w.service.endGrace = 100 * time.Millisecond
		release := make(chan struct{})
		w.adapter.play(func(context.Context, harness.Emitter) error { <-release; return nil })
		defer close(release)
		c := w.dial(t, on)
		env := c.stand.Envelope()
		env.Deadline = time.Now().Add(3 * time.Second)
		if err := c.start(c.ctx(t), startRequest(env, "hi"), func(received) {}); err == nil {
			t.Error("the stream ended cleanly without a terminal")
		}
		answer, err := c.cancel(c.ctx(t), &workerv1.CancelRunRequest{Envelope: c.stand.Envelope().Proto(), Reason: "deadline"})
		must(t, err)
		if !answer.GetActive() || answer.GetStopped() {
			t.Errorf("it says that the harness has stopped: %v", answer)
		}
	})
}

// A reader that reads nothing holds the harness back: what waits is bounded, and
// the deadline ends run and stream.
func TestReaderThatReadsNothing(t *testing.T) {
	// What the client takes of a stream that nobody reads, and then some.
	const least, most = 1 << 20, 4 << 20
	for within := 4 * time.Second; ; within *= 2 { // a busy machine needs longer to fill what the client takes
		switch n := readsNothing(t, within); {
		case n > most, n < least && within > 30*time.Second:
			t.Fatalf("%d bytes were emitted", n)
		case n >= least:
			return
		}
	}
}

// readsNothing starts a run that floods and whose events nobody reads, with so much
// time. It tells how many bytes the harness got rid of.
func readsNothing(t *testing.T, within time.Duration) int64 {
	t.Helper()
	w := bound(t, rpctest.NewStand(t))
	w.service.endGrace = 100 * time.Millisecond
	var handlers, emitted atomic.Int64
	next := w.handler
	w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Add(-1)
		next.ServeHTTP(rw, r)
	})
	c := w.dial(t, newHTTPWire)
	c.adapter.play(floods(&emitted))
	env := c.stand.Envelope()
	env.Deadline = time.Now().Add(within)
	body, err := workerclient.ToJSON(startRequest(env, "hi"))
	must(t, err)
	res, err := workerclient.Routes{Client: c.client}.Send(t.Context(), http.MethodPost, "runs:start", body)
	must(t, err)
	waittest.Until(t, "the harness ends after the deadline", func() bool { return c.adapter.ended.Load() == 1 })
	waittest.Until(t, "the handler ends", func() bool { return handlers.Load() == 0 })
	_, err = io.Copy(io.Discard, res.Body)
	if err == nil {
		t.Error("the stream ended cleanly")
	}
	must(t, res.Body.Close())
	return emitted.Load()
}

// A run that cannot be ended as the contract wants has its stream reset.
func TestStreamWithoutATerminal(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := boundWith(t, rpctest.NewStand(t), &scripted{version: "\x00"}).dial(t, on)
		err := c.start(c.ctx(t), startRequest(c.stand.Envelope(), "hi"), func(received) { t.Error("an event came") })
		if err == nil {
			t.Error("the stream ended cleanly")
		}
	})
}

func TestStartIsRefused(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := bound(t, rpctest.NewStand(t)).dial(t, on)
		for name, change := range map[string]func(*workerv1.StartRunRequest){
			"no input":             func(r *workerv1.StartRunRequest) { r.Input = nil },
			"no message":           func(r *workerv1.StartRunRequest) { r.Input.Message = "" },
			"too long":             func(r *workerv1.StartRunRequest) { r.Input.Message = strings.Repeat("x", 256<<10+1) },
			"another conversation": func(r *workerv1.StartRunRequest) { r.Input.ConversationId = "conversation-2" },
			"context is no object": func(r *workerv1.StartRunRequest) { r.Input.ClientContext = []byte(`[]`) },
			"context is no JSON":   func(r *workerv1.StartRunRequest) { r.Input.ClientContext = []byte(`{"a":1,"a":2}`) },
			"a handle that is none": func(r *workerv1.StartRunRequest) {
				r.Input.Files = []*workerv1.InputFile{{Handle: "../etc/passwd"}}
			},
			"a token without an audience": func(r *workerv1.StartRunRequest) {
				r.Tokens = []*workerv1.CallToken{{Token: "x"}}
			},
		} {
			req := startRequest(c.stand.Envelope(), "hi")
			change(req)
			err := c.start(c.ctx(t), req, func(received) {})
			if !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		large := startRequest(c.stand.Envelope(), "hi")
		large.Input.Files = []*workerv1.InputFile{{Handle: "h", DisplayName: strings.Repeat("x", rpc.DefaultMaxBytes)}}
		wantCode(t, c.start(c.ctx(t), large, func(received) {}), fault.RequestTooLarge)
		if c.adapter.streams.Load() != 0 {
			t.Error("the harness ran")
		}
	})
}

// Shutdown answers, goes on when its caller has gone, and a second one is
// harmless.
func TestShutdown(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := running(t, rpctest.NewStand(t)).dial(t, on)
		for range 2 {
			must(t, c.shutdown(c.ctx(t), &workerv1.ShutdownRequest{Envelope: c.stand.Envelope().Proto()}))
		}
		if c.adapter.ended.Load() != 1 || c.Ready(t.Context()).Ready {
			t.Error("the harness still runs")
		}
		<-c.Done()
		ready, err := c.ready(t.Context())
		must(t, err)
		if ready.GetReady() || !ready.GetBound() {
			t.Errorf("it says %v", ready)
		}
	})
}

func TestShutdownGoesOnWithoutItsCaller(t *testing.T) {
	w := bound(t, rpctest.NewStand(t))
	begun, release := make(chan struct{}), make(chan struct{})
	w.adapter.play(func(ctx context.Context, _ harness.Emitter) error {
		<-ctx.Done()
		close(begun)
		<-release
		return ctx.Err()
	})
	c := w.dial(t, newConnectWire)
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.start(c.ctx(t), startRequest(c.stand.Envelope(), "hi"), func(received) {}) })
	waittest.Until(t, "the run begins", func() bool { return w.adapter.streams.Load() == 1 })
	ctx, gone := context.WithCancel(c.ctx(t))
	answer := make(chan error, 1)
	go func() { answer <- c.shutdown(ctx, &workerv1.ShutdownRequest{Envelope: c.stand.Envelope().Proto()}) }()
	<-begun
	gone()
	if err := <-answer; err == nil {
		t.Error("it was answered")
	}
	select {
	case <-w.Done():
		t.Error("the shutdown ended with its caller")
	default:
	}
	close(release)
	<-w.Done()
	wg.Wait()
}

// No token stands in any log, whatever happens to the requests that bring them.
func TestNoTokenInLogs(t *testing.T) {
	var log syncBuffer
	s := rpctest.NewStand(t)
	s.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	const canary = "canary-token-of-a-call"
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := open(t, s).dial(t, on)
		bind := bindRequest(s.Envelope())
		bind.Tokens[0].Token = canary
		bind.Expected.BootNonce = "another"
		_, err := c.bind(c.ctx(t), bind)
		wantCode(t, err, fault.WorkerMismatch)
		bind.Expected.BootNonce = nonce
		_, err = c.bind(c.ctx(t), bind)
		must(t, err)
		start := startRequest(s.Envelope(), "hi")
		start.Tokens = []*workerv1.CallToken{{Audience: "memory", Token: canary}}
		c.read(t, start)
		start.Input.Message = ""
		wantCode(t, c.start(c.ctx(t), start, func(received) {}), fault.InvalidRequest)
		c.adapter.play(func(context.Context, harness.Emitter) error { panic(errors.New(canary)) })
		start = startRequest(s.Envelope(), "hi")
		start.Envelope.RunId = "run-2"
		c = c.as(on, c.token(fence.Envelope{BindingID: s.BindingID, Epoch: rpctest.Epoch, Generation: rpctest.Generation, RunID: "run-2"}))
		start.Tokens = []*workerv1.CallToken{{Audience: "memory", Token: canary}}
		c.read(t, start)
		text := log.String()
		if strings.Contains(text, canary) || strings.Contains(text, c.client.Token) {
			t.Errorf("a token stands in the log: %s", text)
		}
		if !strings.Contains(text, "panicked") || !strings.Contains(text, "worker_mismatch") {
			t.Errorf("the log says nothing: %s", text)
		}
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Lines are what the protocol says, byte by byte, and come while the run goes on.
func TestLines(t *testing.T) {
	c := bound(t, rpctest.NewStand(t)).dial(t, newHTTPWire)
	c.adapter.play(waits)
	env := c.stand.Envelope()
	body, err := workerclient.ToJSON(startRequest(env, "hi"))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := workerclient.Routes{Client: c.client}.Send(ctx, http.MethodPost, "runs:start", body)
	must(t, err)
	line, err := bufio.NewReader(res.Body).ReadString('\n') // the run still waits
	must(t, err)
	for _, want := range []string{
		`{"envelope":{"protocol_version":1,"binding_id":"` + env.BindingID + `","epoch":1,"lease_generation":2,"run_id":"` + env.RunID + `",`,
		`"deadline":"`, `},"capability_jti":"jti-of-bind","boot_nonce":"nonce-1","event":{"version":1,"type":"run.started","run_id":"`,
		`"sequence":0,`, `"data":{"harness_id":"scripted","adapter_version":"1.0.0"}}}`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %s", want, line)
		}
	}
	cancel()
	must(t, res.Body.Close())
}
