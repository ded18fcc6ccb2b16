package api_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

const (
	chatStart  = "/api/v1/chat/stream/start"
	chatResume = "/api/v1/chat/stream/resume"
	chatCancel = "/api/v1/chat/stream/cancel"
	chatInvoke = "/api/v1/chat/invoke"

	goodChat       = `{"agent_id":"demo","conversation_id":"c1","message":"hi"}`
	goodChatResume = `{"agent_id":"demo","conversation_id":"c1","interrupt_id":"i1","revision":1,"form":{"which":"left"}}`
	goodChatCancel = `{"agent_id":"demo","conversation_id":"c1"}`
)

func names(list []frame) (out []string) {
	for _, f := range list {
		out = append(out, f.event)
	}
	return out
}

// A chat is the custom stream of its run, or its AG-UI stream; a reader of the run
// gets the same, from where it wants.
func TestChat(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: talk})
	a := f.post(t, chatStart, goodChat)
	got := frames(t, a.body)
	want := []string{"content", "tool_start", "tool_end", "content", "content", "done"}
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" || !slices.Equal(names(got), want) {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	last := got[len(got)-1].object(t)
	id, _ := last["run_id"].(string)
	if got[0].id != "2" || got[0].object(t)["delta"] != "I look.\n" || last["outcome"] != "success" {
		t.Errorf("%v", got)
	}
	for query, from := range map[string]int{"": 0, "&after=0": 0, "&after=2": 1, "&after=4": 2, "&after=10": 6} {
		if again := frames(t, f.get(t, "/api/v1/runs/"+id+"/stream?protocol=custom"+query).body); !slices.Equal(again, got[from:]) {
			t.Errorf("%s: %v", query, again)
		}
	}
	second := frames(t, f.post(t, chatStart, strings.Replace(goodChat, "{", `{"protocol":"agui",`, 1)).body)
	first, last := second[0].object(t), second[len(second)-1].object(t)
	if first["type"] != "RUN_STARTED" || first["threadId"] != "c1" || last["type"] != "RUN_FINISHED" || first["runId"] == id {
		t.Errorf("%v", second)
	}
}

// What a chat waits for comes with its revision, and the answer streams the run
// that carries it out; the same answer again streams the same run.
func TestChatResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: asksOnce})
	got := frames(t, f.post(t, chatStart, goodChat).body)
	if !slices.Equal(names(got), []string{"input_required"}) {
		t.Fatalf("%v", got)
	}
	asks := got[0].object(t)
	if asks["interrupt_id"] != "i1" || asks["revision"] != 1.0 || asks["prompt"] != "Which?" {
		t.Errorf("%v", asks)
	}
	refused(t, f.post(t, chatResume, strings.Replace(goodChatResume, "i1", "i2", 1)), http.StatusNotFound, fault.InterruptNotFound, "")
	refused(t, f.post(t, chatResume, strings.Replace(goodChatResume, ":1,", ":2,", 1)), http.StatusConflict, fault.InterruptConflict, "")
	answered := frames(t, f.post(t, chatResume, goodChatResume).body)
	if !slices.Equal(names(answered), []string{"content", "done"}) || answered[0].object(t)["delta"] != `{"which":"left"}` {
		t.Fatalf("%v", answered)
	}
	if again := frames(t, f.post(t, chatResume, goodChatResume).body); !slices.Equal(again, answered) {
		t.Errorf("%v", again)
	}
	refused(t, f.post(t, chatResume, strings.Replace(goodChatResume, "left", "right", 1)), http.StatusConflict, fault.InterruptConflict, "")
}

// A cancel names the conversation, and says what was confirmed.
func TestChatCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: func(**runstest.Stack) runstest.Script { return waits }})
	type answer struct {
		Cancelled, Confirmed bool
		RunID                string `json:"run_id"`
		SideEffects          string `json:"side_effect_status"`
	}
	var got answer
	if f.post(t, chatCancel, goodChatCancel).json(t, &got); got != (answer{Confirmed: true, SideEffects: "none"}) {
		t.Errorf("nothing is under way, and it says %+v", got)
	}
	id := f.start(t, "hi")
	if f.post(t, chatCancel, goodChatCancel).json(t, &got); got != (answer{true, true, id, "none"}) {
		t.Errorf("%+v", got)
	}
	if end := f.ended(t, id); end.Type() != event.TypeRunCancelled {
		t.Errorf("%+v", end)
	}
}

type invoked struct {
	Success           bool
	Content, Thinking string
	AgentID           string `json:"agent_id"`
	ConversationID    string `json:"conversation_id"`
	RunID             string `json:"run_id"`
	Interrupt         map[string]any
	Revision          uint64
}

func TestInvoke(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: talk})
	var got invoked
	f.post(t, chatInvoke, goodChat).json(t, &got)
	if got.Content != "I look.\n\n\nIt has one line." || !got.Success || got.AgentID != "demo" || got.ConversationID != "c1" || got.RunID == "" {
		t.Errorf("%+v", got)
	}
	f = newFixture(t, options{script: asksOnce})
	got = invoked{}
	if f.post(t, chatInvoke, goodChat).json(t, &got); got.Success || got.Interrupt["interrupt_id"] != "i1" || got.Revision != 1 {
		t.Errorf("%+v", got)
	}
}

// A run that fails is the answer's error, with what it did.
func TestInvokeOfARunThatFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: func(**runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			return p.Emit(ctx, started(), event.RunError{
				Code: string(fault.ModelFailed), Message: "a-secret", SideEffectStatus: event.SideEffectsNone, RetryAfterSeconds: new(uint64(7)),
			})
		}
	}})
	a := f.post(t, chatInvoke, goodChat)
	if e := a.fault(t); e.Code != fault.ModelFailed || a.status != fault.ModelFailed.HTTPStatus() || strings.Contains(string(a.body), "a-secret") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The client of a chat that goes away cancels its run, in either way of asking.
func TestAChatClientThatGoesAwayCancelsItsRun(t *testing.T) {
	t.Parallel()
	for _, path := range []string{chatStart, chatInvoke} {
		f := newFixture(t, options{script: func(**runstest.Stack) runstest.Script { return waits }})
		ctx, goAway := context.WithCancel(t.Context())
		left := make(chan struct{})
		req := f.request(t, http.MethodPost, path, goodChat).WithContext(ctx)
		go func() {
			defer close(left)
			res, err := f.client.Do(req)
			if err == nil {
				<-ctx.Done()
				_ = res.Body.Close()
			}
		}()
		id := f.run(t)
		goAway()
		<-left
		cancelledByDisconnect(t, f, id)
	}
}

// Nobody gets further than the agents that the caller may use.
func TestWhoMayChat(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: asksOnce})
	f.post(t, chatStart, goodChat)
	f.grants.allow("user-2", authz.CanInvoke, authz.AgentID("demo"))
	other := func(path, body string) answer {
		return f.send(t, f.requestTo(t, f.public, "user-2", http.MethodPost, path, body))
	}
	refused(t, other(chatResume, goodChatResume), http.StatusNotFound, fault.InterruptNotFound, "")
	f.grants.revoke("user-1", authz.CanInvoke, authz.AgentID("demo"))
	for path, body := range map[string]string{chatStart: goodChat, chatResume: goodChatResume, chatCancel: goodChatCancel, chatInvoke: goodChat} {
		refused(t, f.post(t, path, body), http.StatusForbidden, fault.AccessDenied, "")
	}
}
