package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

const agui = "/api/v1/agents/demo/agui"

// run is the canonical run that a client started, found as an operator would.
func (f *fixture) run(t *testing.T) string {
	t.Helper()
	id := ""
	waittest.Until(t, "a run is there", func() bool {
		list, err := f.stack.Writer.Backend().List(t.Context(), "", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 && list[0].Run != nil {
			id = list[0].Run.ID
		}
		return id != ""
	})
	return id
}

func TestAGUIRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: talk})
	a := f.post(t, agui, goodAGUI)
	got := frames(t, a.body)
	want := []string{
		"RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
		"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED",
	}
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" || !slices.Equal(kinds(got), want) {
		t.Fatalf("%d %v %v", a.status, a.header, kinds(got))
	}
	// The ids are the client's; the canonical run is in the metadata.
	first, last := got[0].object(t), got[len(got)-1].object(t)
	id := member(t, first, "metadata", "run_id")
	for _, o := range []map[string]any{first, last} {
		if o["threadId"] != "c1" || o["runId"] != "r1" || member(t, o, "metadata", "run_id") != id {
			t.Errorf("%v", o)
		}
	}
	if member(t, last, "outcome", "type") != "success" || member(t, last, "metadata", "durability") != "committed" {
		t.Errorf("%v", last)
	}
	// What the client was shown is the committed log of a run like any other.
	if again := frames(t, f.get(t, "/api/v1/runs/"+id+"/stream?protocol=agui").body); !slices.Equal(kinds(again), want) {
		t.Errorf("%v", kinds(again))
	}
	// The same request again is the same run again, and not another one.
	if again := frames(t, f.post(t, agui, goodAGUI).body); !slices.Equal(again, got) {
		t.Errorf("a repeated request was answered with\n%v\nand not\n%v", again, got)
	}
}

func member(t *testing.T, o map[string]any, path ...string) string {
	t.Helper()
	for _, p := range path[:len(path)-1] {
		o, _ = o[p].(map[string]any)
	}
	s, ok := o[path[len(path)-1]].(string)
	if !ok {
		t.Fatalf("%v is not in %v", path, o)
	}
	return s
}

// What the client gave reaches the worker, and only that.
func TestAGUIInputReachesTheWorker(t *testing.T) {
	t.Parallel()
	turns := make(chan string, 1)
	f := newFixture(t, options{script: func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			turns <- p.Turn.ConversationID + " " + p.Turn.Message + " " + string(p.Turn.ClientContext)
			return answers("ok")(s)(ctx, p)
		}
	}})
	f.post(t, agui, `{"threadId":"c1","runId":"r1","messages":[{"id":"1","role":"system","content":"obey"},{"id":"2","role":"user","content":"old"},`+
		`{"id":"3","role":"user","content":[{"type":"text","text":"new"},{"type":"image","source":{"type":"url","value":"https://x.test"}}]}],"state":{"a":1}}`)
	if got := <-turns; got != `c1 new {"state":{"a":1}}` {
		t.Errorf("the worker got %s", got)
	}
}

// Whatever goes wrong in a run, the stream has its terminal.
func TestAGUIRunsThatFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("the worker's stream broke")
	for name, c := range map[string]struct {
		end  func(ctx context.Context, p *runstest.Play) error
		code string
	}{
		"an error of the worker": {func(ctx context.Context, p *runstest.Play) error {
			return p.Emit(ctx, event.RunError{Code: "model_failed", Message: "a-secret", SideEffectStatus: event.SideEffectsNone})
		}, "model_failed"},
		"no terminal":     {func(context.Context, *runstest.Play) error { return nil }, "protocol"},
		"a broken stream": {func(context.Context, *runstest.Play) error { return broken }, "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{script: func(**runstest.Stack) runstest.Script {
				return func(ctx context.Context, p *runstest.Play) error {
					if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}, event.TextDelta{MessageID: "m1", Delta: "I am"}); err != nil {
						return err
					}
					return c.end(ctx, p)
				}
			}})
			a := f.post(t, agui, goodAGUI)
			got := frames(t, a.body)
			if want := []string{"RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_ERROR"}; !slices.Equal(kinds(got), want) {
				t.Fatalf("%v", kinds(got))
			}
			last := got[len(got)-1].object(t)
			if last["code"] != c.code || last["message"] == "" || strings.Contains(string(a.body), "a-secret") {
				t.Errorf("%v", last)
			}
		})
	}
}

// cancelledByDisconnect waits for the run's end.
func cancelledByDisconnect(t *testing.T, f *fixture, id string) {
	t.Helper()
	end := f.ended(t, id)
	if d, ok := end.Data.(event.RunCancelled); !ok || d.Reason != event.CancelledByDisconnect {
		t.Errorf("the run ended with %+v", end.Data)
	}
}

// The client that started a run and streams it goes away: the run is cancelled.
// Another one that reads the same run is told.
func TestAnAGUIClientThatGoesAwayCancelsItsRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: func(**runstest.Stack) runstest.Script { return waits }})
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	res, err := f.client.Do(f.request(t, http.MethodPost, agui, goodAGUI).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewReader(res.Body)
	for line := ""; !strings.Contains(line, "TEXT_MESSAGE_CONTENT"); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	id := f.run(t)
	other, err := f.client.Do(f.request(t, http.MethodGet, "/api/v1/runs/"+id+"/stream?protocol=agui", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Body.Close() }()
	goAway()
	cancelledByDisconnect(t, f, id)
	rest, err := io.ReadAll(other.Body)
	if err != nil {
		t.Fatal(err)
	}
	seen := frames(t, rest)
	if last := seen[len(seen)-1].object(t); last["type"] != "RUN_FINISHED" || member(t, last, "outcome", "type") != "cancelled" {
		t.Errorf("the other reader saw %v", last)
	}
}

// A request that was repeated follows the run of the first one and does not
// cancel it when its client goes away.
func TestARepeatedAGUIRequestDoesNotCancel(t *testing.T) {
	t.Parallel()
	faults := &faulty{left: make(chan struct{}, 2)}
	t.Cleanup(func() { // once the servers have ended all requests
		if len(faults.cancelled) > 0 {
			t.Errorf("cancels %v", faults.cancelled)
		}
	})
	proceed := make(chan struct{})
	f := newFixture(t, options{
		change: func(c *api.Config) { faults.Runs, c.Runs = c.Runs, faults },
		script: func(s **runstest.Stack) runstest.Script {
			return func(ctx context.Context, p *runstest.Play) error {
				if err := p.Emit(ctx, started()); err != nil {
					return err
				}
				select {
				case <-proceed:
					return finishes(ctx, s, p)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		},
	})
	first, err := f.client.Do(f.request(t, http.MethodPost, agui, goodAGUI))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Body.Close() }()
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	again, err := f.client.Do(f.request(t, http.MethodPost, agui, goodAGUI).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Body.Close() }()
	if _, err := bufio.NewReader(again.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	goAway()
	<-faults.left
	close(proceed)
	body, err := io.ReadAll(first.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := kinds(frames(t, body)); !slices.Equal(got, []string{"RUN_STARTED", "RUN_FINISHED"}) {
		t.Errorf("%v", got)
	}
}

// A run that asks ends its stream with the question, behind what the client had.
func TestAGUIRunThatAsks(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			asks := event.InterruptRequested{
				InterruptID: "i1", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Which?",
				Fields: []event.FormField{{FieldName: "which", FieldType: "text", Required: true}},
			}
			if err := p.Emit(ctx, started(), asks); err != nil {
				return err
			}
			if err := (*s).Interrupt(ctx, p, "snap-1", asks); err != nil {
				return err
			}
			return p.Emit(ctx, event.RunInterrupted{InterruptID: "i1", Reason: event.InterruptedForHumanInput})
		}
	}})
	got := frames(t, f.post(t, agui, strings.Replace(goodAGUI, `"state":{}`, `"state":{"page":3}`, 1)).body)
	if k := kinds(got); !slices.Equal(k, []string{"RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"}) {
		t.Fatalf("%v", k)
	}
	if s := got[1].data; !strings.Contains(s, `"snapshot":{"page":3}`) {
		t.Errorf("%s", s)
	}
	if s := got[2].data; !strings.Contains(s, `"messages":[{"id":"u1","role":"user","content":"hi"}]`) {
		t.Errorf("%s", s)
	}
	if s := got[3].data; !strings.Contains(s, `"revision":1`) {
		t.Errorf("the interrupt has no revision: %s", s)
	}
	if s := got[3].data; !strings.Contains(s, `"outcome":{"type":"interrupt","interrupts":[{"id":"i1","reason":"human_input","message":"Which?"`) {
		t.Errorf("%s", s)
	}
}

// A client that started a run and reads nothing of it is dropped, and its run is
// cancelled.
func TestAnAGUIClientThatStallsCancelsItsRun(t *testing.T) {
	t.Parallel()
	headers := make(chan struct{}) // on a busy machine, a client is slow to read even those
	f := newFixture(t, options{
		buffer: 4 << 10, change: func(c *api.Config) { c.WriteTimeout = 50 * time.Millisecond },
		script: func(**runstest.Stack) runstest.Script {
			return func(ctx context.Context, p *runstest.Play) error {
				if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}); err != nil {
					return err
				}
				select {
				case <-headers:
				case <-ctx.Done():
					return ctx.Err()
				}
				for { // until somebody ends it
					if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: strings.Repeat("x", 8<<10)}); err != nil {
						return err
					}
					if err := breathe(ctx); err != nil {
						return err
					}
				}
			}
		},
	})
	res, err := f.client.Do(f.request(t, http.MethodPost, agui, goodAGUI))
	close(headers)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	cancelledByDisconnect(t, f, f.run(t))
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("the stream of a stalled client ended as if it were whole")
	}
}
