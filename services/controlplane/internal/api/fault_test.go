package api_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// faulty is the real domain with faults put in.
type faulty struct {
	api.Runs

	follow func(yield func(uint64, json.RawMessage) error) error
	status func() (runs.Status, error)
	// left gets a value whenever a reader of the real domain has left.
	left chan struct{}

	mu        sync.Mutex
	cancelled []event.CancelReason
}

func (f *faulty) Follow(ctx context.Context, c runs.Caller, id string, o runs.FollowOptions, yield func(uint64, json.RawMessage) error) error {
	if f.follow != nil {
		return f.follow(yield)
	}
	err := f.Runs.Follow(ctx, c, id, o, yield)
	if f.left != nil {
		f.left <- struct{}{}
	}
	return err
}

func (f *faulty) Status(ctx context.Context, c runs.Caller, id string) (runs.Status, error) {
	if f.status == nil {
		return f.Runs.Status(ctx, c, id)
	}
	return f.status()
}

func (f *faulty) Cancel(ctx context.Context, c runs.Caller, id string, reason event.CancelReason) (runs.Cancelled, error) {
	f.mu.Lock()
	f.cancelled = append(f.cancelled, reason)
	f.mu.Unlock()
	return f.Runs.Cancel(ctx, c, id, reason)
}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func withFaults(t *testing.T, f *faulty, log io.Writer) *fixture {
	t.Helper()
	return newFixture(t, options{
		script: func(**runstest.Stack) runstest.Script { return waits },
		change: func(c *api.Config) {
			f.Runs, c.Runs = c.Runs, f
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		},
	})
}

// broken reads an answer that has to end within a chunk: a reset, and no clean
// end that could be taken for the whole.
func broken(t *testing.T, f *fixture, r *http.Request) string {
	t.Helper()
	res, err := f.client.Do(r)
	if err != nil {
		return ""
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil {
		t.Errorf("the answer ended as if it were whole: %d %q", res.StatusCode, body)
	}
	return string(body)
}

func canonical(t *testing.T, seq uint64, d event.Data) json.RawMessage {
	t.Helper()
	raw, err := event.Encode(event.Draft{Data: d}.Event("run_1", "c1", seq, moment()))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A stream that cannot be brought to its terminal is reset, whatever the reason.
func TestAStreamWithoutATerminalIsReset(t *testing.T) {
	t.Parallel()
	for name, follow := range map[string]func(t *testing.T, yield func(uint64, json.RawMessage) error) error{
		"the store is away": func(*testing.T, func(uint64, json.RawMessage) error) error {
			return fault.New(fault.DependencyUnavailable, "test")
		},
		"an event that cannot be read": func(_ *testing.T, yield func(uint64, json.RawMessage) error) error {
			return yield(1, json.RawMessage(`{"type":"nonsense`))
		},
		"an event of two lines": func(t *testing.T, yield func(uint64, json.RawMessage) error) error {
			t.Helper()
			return yield(1, append([]byte("\n"), canonical(t, 1, event.TextStarted{MessageID: "m"})...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := &faulty{status: func() (runs.Status, error) { return runs.Status{RunID: "run_1", ConversationID: "c1"}, nil }}
			faults.follow = func(yield func(uint64, json.RawMessage) error) error {
				if err := yield(0, canonical(t, 0, started())); err != nil {
					return err
				}
				return follow(t, yield)
			}
			f := withFaults(t, faults, io.Discard)
			for protocol, first := range map[string]string{"canonical": "event: run.started\n", "agui": `"type":"RUN_STARTED"`} {
				if name == "an event of two lines" && protocol == "agui" {
					continue // it is one event there, encoded anew
				}
				if body := broken(t, f, f.request(t, http.MethodGet, "/api/v1/runs/run_1/stream?protocol="+protocol, "")); !strings.Contains(body, first) {
					t.Errorf("%s: what was there was not sent: %q", protocol, body)
				}
			}
		})
	}
}

// What the lifecycle does not allow does not reach an AG-UI client.
func TestAnUnlawfulEventResetsAnAGUIStream(t *testing.T) {
	t.Parallel()
	faults := &faulty{status: func() (runs.Status, error) { return runs.Status{RunID: "run_1", ConversationID: "c1"}, nil }}
	faults.follow = func(yield func(uint64, json.RawMessage) error) error {
		if err := yield(0, canonical(t, 0, started())); err != nil {
			return err
		}
		return yield(1, canonical(t, 1, event.TextDelta{MessageID: "m", Delta: "a"}))
	}
	f := withFaults(t, faults, io.Discard)
	if body := broken(t, f, f.request(t, http.MethodGet, "/api/v1/runs/run_1/stream?protocol=agui", "")); strings.Contains(body, "TEXT_MESSAGE") {
		t.Errorf("%q", body)
	}
}

// The request that started a run may not fall too far behind.
func TestAnAGUIClientThatIsBehindCancelsItsRun(t *testing.T) {
	t.Parallel()
	faults := &faulty{follow: func(func(uint64, json.RawMessage) error) error { return runs.ErrBehind }}
	f := withFaults(t, faults, io.Discard)
	broken(t, f, f.request(t, http.MethodPost, agui, goodAGUI))
	faults.mu.Lock()
	defer faults.mu.Unlock()
	if len(faults.cancelled) != 1 || faults.cancelled[0] != event.CancelledByDisconnect {
		t.Errorf("cancels %v", faults.cancelled)
	}
}

// One handler that panics is one connection that ends.
func TestAPanicHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	var log journal
	faults := &faulty{status: func() (runs.Status, error) { panic("a-secret was nil") }}
	f := withFaults(t, faults, &log)
	if body := broken(t, f, f.request(t, http.MethodGet, "/api/v1/runs/run_1", "")); body != "" {
		t.Errorf("%q", body)
	}
	if a := f.get(t, "/api/v1/runs/run_1/events"); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	if !strings.Contains(log.String(), "handler panicked") {
		t.Errorf("the log says %s", log.String())
	}
}

// What goes wrong inside is told by its code and nothing else.
func TestCausesStayInside(t *testing.T) {
	t.Parallel()
	var log journal
	faults := &faulty{status: func() (runs.Status, error) {
		return runs.Status{}, fault.Wrap(io.ErrNoProgress, fault.DependencyUnavailable, "store.secret-op")
	}}
	f := withFaults(t, faults, &log)
	a := f.get(t, "/api/v1/runs/run_1")
	refused(t, a, http.StatusServiceUnavailable, fault.DependencyUnavailable, "")
	if strings.Contains(string(a.body), "progress") || strings.Contains(string(a.body), "secret-op") {
		t.Errorf("%s", a.body)
	}
	if id := a.fault(t).IncidentID; !strings.Contains(log.String(), id) || !strings.Contains(log.String(), "store.secret-op") {
		t.Errorf("the log lacks the incident %s: %s", id, log.String())
	}
}
