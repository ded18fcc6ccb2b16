package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// A page tells how to get the next one; all of them are the log, without what is
// for operators only.
func TestPagesOfEventsAreTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			secret := event.ProviderMetadata{Provider: "p", Model: "secret-model", Metadata: `{"region":"eu"}`}
			if err := p.Emit(ctx, started(), secret, event.Warning{Code: "slow", Message: "This takes a while."}); err != nil {
				return err
			}
			if err := p.Text(ctx, "m1", "Hello."); err != nil {
				return err
			}
			return finishes(ctx, s, p)
		}
	}})
	id := f.start(t, "hi")
	f.ended(t, id)
	type page struct {
		Events     []json.RawMessage `json:"events"`
		NextCursor *uint64           `json:"next_cursor"`
		Ended      bool              `json:"ended"`
	}
	var whole page
	f.get(t, "/api/v1/runs/"+id+"/events").json(t, &whole)
	if len(whole.Events) != 6 || !whole.Ended {
		t.Fatalf("%d events, ended %v", len(whole.Events), whole.Ended)
	}
	var paged []json.RawMessage
	after := ""
	for range 20 {
		var p page
		f.get(t, "/api/v1/runs/"+id+"/events?limit=2"+after).json(t, &p)
		if len(p.Events) > 2 {
			t.Fatalf("%d events on a page of 2", len(p.Events))
		}
		paged = append(paged, p.Events...)
		if p.Ended {
			break
		}
		after = "&after=" + strconv.FormatUint(*p.NextCursor, 10)
	}
	same := func(a, b json.RawMessage) bool { return string(a) == string(b) }
	if !slices.EqualFunc(paged, whole.Events, same) {
		t.Errorf("pages have\n%s\nand the whole\n%s", paged, whole.Events)
	}
	var streamed []json.RawMessage
	for _, fr := range frames(t, f.get(t, "/api/v1/runs/"+id+"/stream").body) {
		streamed = append(streamed, json.RawMessage(fr.data))
	}
	if !slices.EqualFunc(streamed, whole.Events, same) {
		t.Errorf("the stream has\n%s\nand the pages\n%s", streamed, whole.Events)
	}
	for _, raw := range whole.Events {
		if strings.Contains(string(raw), "secret") {
			t.Errorf("a caller sees %s", raw)
		}
	}
}

func TestStatusOfARun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	id := f.start(t, "hi")
	if end := f.ended(t, id); end.Type() != event.TypeRunFinished {
		t.Errorf("the run ended with %s", end.Type())
	}
	var status map[string]any
	f.get(t, "/api/v1/runs/"+id).json(t, &status)
	for name, want := range map[string]any{
		"run_id": id, "state": "ended", "agent_id": "demo", "conversation_id": "c1", "end": "success", "durable_revision": 1.0, "lease_generation": 1.0,
	} {
		if status[name] != want {
			t.Errorf("%s is %v, not %v", name, status[name], want)
		}
	}
}

// One key is one run; a conversation has one run at a time.
func TestStartsThatMeet(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: func(**runstest.Stack) runstest.Script { return waits }})
	body := func(message, key string) string {
		return `{"agent_id":"demo","conversation_id":"c1","message":"` + message + `","idempotency_key":"` + key + `"}`
	}
	first, again := f.post(t, "/api/v1/runs", body("hi", "k1")), f.post(t, "/api/v1/runs", body("hi", "k1"))
	if first.status != http.StatusAccepted || string(first.body) != string(again.body) || again.status != http.StatusAccepted {
		t.Errorf("%d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
	refused(t, f.post(t, "/api/v1/runs", body("other", "k1")), http.StatusConflict, fault.IdempotencyConflict, "")
	refused(t, f.post(t, "/api/v1/runs", body("hi", "k2")), http.StatusConflict, fault.AlreadyRunning, "")
	var run struct {
		RunID string `json:"run_id"`
	}
	first.json(t, &run)
	cancel(t, f, run.RunID)
}

// waits begins and then does nothing until it is cancelled.
func waits(ctx context.Context, p *runstest.Play) error {
	if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}, event.TextDelta{MessageID: "m1", Delta: "I am"}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// cancel cancels a run, and asks until that is confirmed: an answer does not wait
// for long.
func cancel(t *testing.T, f *fixture, id string) {
	t.Helper()
	waittest.Until(t, "the cancel is confirmed", func() bool {
		a := f.post(t, "/api/v1/runs/"+id+":cancel", "")
		var c struct {
			Cancelled bool   `json:"cancelled"`
			Confirmed bool   `json:"confirmed"`
			RunID     string `json:"run_id"`
			Effects   string `json:"side_effect_status"`
		}
		a.json(t, &c)
		if a.status != http.StatusOK || !c.Cancelled || c.RunID != id || c.Effects == "" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return c.Confirmed
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: func(**runstest.Stack) runstest.Script { return waits }})
	id := f.start(t, "hi")
	refused(t, f.post(t, "/api/v1/runs/"+id+":cancel", `{"force":true}`), http.StatusBadRequest, fault.InvalidRequest, "body: /force: ")
	cancel(t, f, id)
	if a := f.post(t, "/api/v1/runs/"+id+":cancel", "{}"); a.status != http.StatusOK || !strings.Contains(string(a.body), `"confirmed":true`) {
		t.Errorf("again: %d %s", a.status, a.body)
	}
	end := f.ended(t, id)
	if d, ok := end.Data.(event.RunCancelled); !ok || d.Reason != event.CancelledByClient {
		t.Errorf("the run ended with %+v", end.Data)
	}
}

func TestACancelOfARunThatFinishedSaysSo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	id := f.start(t, "hi")
	f.ended(t, id)
	if a := f.post(t, "/api/v1/runs/"+id+":cancel", ""); a.status != http.StatusOK || !strings.Contains(string(a.body), `"cancelled":false`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Operators see where a conversation is, and nothing of whose it is or what it
// says.
func TestOperators(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.ended(t, f.start(t, "a-secret-message"))
	for _, path := range []string{"/api/v1/bindings", "/api/v1/bindings/hs_x"} {
		refused(t, f.send(t, f.requestTo(t, f.operators, "user-1", http.MethodGet, path, "")), http.StatusForbidden, fault.AccessDenied, "")
	}
	get := func(path string) answer {
		return f.send(t, f.requestTo(t, f.operators, "operator-1", http.MethodGet, path, ""))
	}
	var list struct {
		Bindings   []map[string]any `json:"bindings"`
		NextCursor string           `json:"next_cursor"`
	}
	a := get("/api/v1/bindings?limit=1")
	a.json(t, &list)
	if a.status != http.StatusOK || len(list.Bindings) != 1 || list.NextCursor != list.Bindings[0]["binding_id"] {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, private := range []string{"user-1", "c1\"", "a-secret-message", "organization"} {
		if strings.Contains(string(a.body), "\""+private) {
			t.Errorf("operators see %q in %s", private, a.body)
		}
	}
	one := get("/api/v1/bindings/" + list.NextCursor)
	if one.status != http.StatusOK || !strings.Contains(string(one.body), `"sandbox":{"instance_uid":"instance-1"`) {
		t.Errorf("%d %s", one.status, one.body)
	}
	if next := get("/api/v1/bindings?after=" + list.NextCursor); !strings.Contains(string(next.body), `"bindings":[]`) {
		t.Errorf("%s", next.body)
	}
	refused(t, get("/api/v1/bindings/hs_nobody"), http.StatusNotFound, fault.NotFound, "")
	refused(t, get("/api/v1/bindings/nobody"), http.StatusNotFound, fault.NotFound, "")
	refused(t, get("/api/v1/bindings?after=nobody"), http.StatusBadRequest, fault.InvalidRequest, "after: ")
	refused(t, get("/api/v1/bindings?after="), http.StatusBadRequest, fault.InvalidRequest, "after: ")
}

// Where it is known that there is no room the answer says so itself, on every route that
// starts a run, and when to ask again.
func TestNoRoomIsAnsweredWithRetryAfter(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.stack.Provider.Full(fault.New(fault.SandboxCapacity, "test", fault.RetryAfter(5*time.Second)))
	for path, body := range map[string]string{
		"/api/v1/runs": goodStart, agui: goodAGUI, "/api/v1/chat/stream/start": goodChat, "/api/v1/chat/invoke": goodChat,
	} {
		a := f.post(t, path, body)
		refused(t, a, http.StatusServiceUnavailable, fault.SandboxCapacity, "")
		if got := a.header.Get("Retry-After"); got != "5" {
			t.Errorf("%s: Retry-After is %q", path, got)
		}
	}
	f.stack.Provider.Full(nil)
	if a := f.post(t, "/api/v1/runs", goodStart); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The events of a run that are kept no longer are not found, in any encoding and before
// a stream begins; how it ended is.
func TestEventsThatAreKeptNoLonger(t *testing.T) {
	t.Parallel()
	backend := bindingtest.NewMemory()
	f := newFixture(t, options{domain: runstest.Options{Backend: backend}})
	id := f.start(t, "hi")
	f.ended(t, id)
	if err := backend.ForgetLog(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/events", "/events?after=1", "/stream", "/stream?protocol=agui", "/stream?protocol=custom"} {
		refused(t, f.get(t, "/api/v1/runs/"+id+path), http.StatusNotFound, fault.NotFound, "events: ")
	}
	var run struct {
		State string `json:"state"`
		End   string `json:"end"`
	}
	f.get(t, "/api/v1/runs/"+id).json(t, &run)
	if run.State != "ended" || run.End != "success" {
		t.Errorf("the run is %+v", run)
	}
}

// A request that is repeated finds its run, and where the events of that are kept no
// longer it says so instead of a stream that breaks off.
func TestARepeatedRequestWhoseEventsAreKeptNoLonger(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		asks       func(**runstest.Stack) runstest.Script
		before     string
		path, body string
		runs       int
	}{
		"agui":        {path: agui, body: goodAGUI, runs: 1},
		"chat resume": {asks: asksOnce, before: goodChat, path: chatResume, body: goodChatResume, runs: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := bindingtest.NewMemory()
			f := newFixture(t, options{script: row.asks, domain: runstest.Options{Backend: backend}})
			if row.before != "" {
				f.post(t, chatStart, row.before)
			}
			if a := f.post(t, row.path, row.body); a.status != http.StatusOK || len(frames(t, a.body)) == 0 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			forgotten := 0
			waittest.Until(t, "the runs are concluded, and their logs forgotten", func() bool {
				ended, err := backend.EndedRuns(t.Context(), time.Now().Add(time.Hour), binding.EndedRun{}, row.runs)
				if err != nil {
					t.Fatal(err)
				}
				for _, run := range ended {
					if err := backend.ForgetLog(t.Context(), run.RunID); err != nil {
						t.Fatal(err)
					}
				}
				forgotten += len(ended)
				return forgotten == row.runs
			})
			refused(t, f.post(t, row.path, row.body), http.StatusNotFound, fault.NotFound, "events: ")
		})
	}
}
