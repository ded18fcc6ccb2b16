package e2e

import (
	"context"
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/aguidriver"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// agui is a conversation of the real AG-UI client with the demo agent.
func (w *world) agui(t *testing.T, turns ...aguidriver.Turn) (*talk, aguidriver.Conversation) {
	t.Helper()
	header, err := w.Token(t.Context(), stack.User)
	if err != nil {
		t.Fatal(err)
	}
	c := w.talk()
	return c, aguidriver.Conversation{
		URL: w.API + "/api/v1/agents/" + stack.Agent + "/agui", HeaderFile: header, ThreadID: c.conversation, Turns: turns,
	}
}

// canonical gives the whole run behind what an AG-UI client saw.
func (c *talk) canonical(t *testing.T, seen aguidriver.Seen) turn {
	t.Helper()
	if len(seen.Events) == 0 || seen.Events[0].Type() != "RUN_STARTED" {
		t.Fatalf("the client saw %v (%s)", seen.Types(), seen.Error)
	}
	metadata, _ := seen.Events[0]["metadata"].(map[string]any)
	id, _ := metadata["run_id"].(string)
	status, err := c.client.Run(t.Context(), id)
	if err != nil {
		t.Fatalf("the run %q that RUN_STARTED names: %v", id, err)
	}
	return c.end(t, apiclient.Started{RunID: id, BindingID: status.BindingID, Epoch: status.Epoch})
}

// Text, a tool call with its result, the end, an error, and a conversation that
// goes on after it: as the real client reads them.
func TestTheRealAGUIClientReadsWhatWasSaid(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	name, line := w.sample(t)
	c, conversation := w.agui(t,
		aguidriver.Turn{RunID: "r-1", Message: ">>think a moment\n>>say reading\n" + read(name)},
		aguidriver.Turn{RunID: "r-2", Message: ">>error 500"},
		aguidriver.Turn{RunID: "r-3", Message: "What do you remember?"},
	)
	seen := aguidriver.Run(t, conversation)
	first, failed, last := seen[0], seen[1], seen[2]
	for i, s := range seen {
		if len(s.Warnings) > 0 {
			t.Errorf("turn %d: the client complains: %q", i+1, s.Warnings)
		}
	}
	aguiFinished(t, first, "r-1", c.conversation)
	if text := first.Text(); text != c.canonical(t, first).text(t) || !strings.Contains(text, "reading") || !strings.Contains(text, line) {
		t.Errorf("the client read %q", text)
	}
	checkAGUITool(t, first, name, line)

	if end := failed.Terminal(); end.Type() != "RUN_ERROR" || end.String("message") == "" {
		t.Errorf("the failed turn ended as %v (%s)", end, failed.Error)
	} else if code := c.canonical(t, failed).failure(t).Code; end.String("code") != code {
		t.Errorf("the client was told %q, the log says %q", end.String("code"), code)
	}

	aguiFinished(t, last, "r-3", c.conversation)
	if !strings.Contains(last.Text(), line) {
		t.Errorf("after the error it remembers %q", last.Text())
	}
}

func aguiFinished(t *testing.T, s aguidriver.Seen, runID, threadID string) {
	t.Helper()
	end := s.Terminal()
	if s.Error != "" || end.Type() != "RUN_FINISHED" || end.Outcome() != "success" {
		t.Errorf("%s ended as %v (%s); it saw %v", runID, end, s.Error, s.Types())
		return
	}
	for _, e := range []aguidriver.Event{s.Events[0], end} {
		if e.String("runId") != runID || e.String("threadId") != threadID {
			t.Errorf("%s of %s in %s is of %s in %s", e.Type(), runID, threadID, e.String("runId"), e.String("threadId"))
		}
	}
}

// checkAGUITool checks the one call of a turn, in the events and in the messages
// that the client made of them.
func checkAGUITool(t *testing.T, s aguidriver.Seen, name, line string) {
	t.Helper()
	counts := map[string]int{}
	id := ""
	for _, e := range s.Events {
		if !strings.HasPrefix(e.Type(), "TOOL_CALL_") {
			continue
		}
		counts[e.Type()]++
		if id == "" {
			id = e.String("toolCallId")
		}
		if e.String("toolCallId") != id {
			t.Errorf("an event of the call %q: %v", e.String("toolCallId"), e)
		}
		if e.Type() == "TOOL_CALL_START" && e.String("toolCallName") != "fs.read_text_file" {
			t.Errorf("the call is of %q", e.String("toolCallName"))
		}
		if e.Type() == "TOOL_CALL_RESULT" && !strings.Contains(e.String("content"), line) {
			t.Errorf("the result is %q", e.String("content"))
		}
	}
	if counts["TOOL_CALL_START"] != 1 || counts["TOOL_CALL_END"] != 1 || counts["TOOL_CALL_RESULT"] != 1 {
		t.Errorf("events of the call: %v", counts)
	}
	called, answered := false, false
	for _, m := range s.Messages {
		for _, call := range m.ToolCalls {
			called = called || call.ID == id && strings.Contains(call.Function.Arguments, name)
		}
		answered = answered || m.Role == "tool" && m.ToolCallID == id && strings.Contains(m.Content, line)
	}
	if !called || !answered {
		t.Errorf("the client's messages: called %v, answered %v: %+v", called, answered, s.Messages)
	}
}

// A client that goes away takes its run with it, and the conversation goes on.
func TestARunEndsWithTheAGUIClientThatStartedIt(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	mark := "mark-" + rand.Text()
	c, conversation := w.agui(t, aguidriver.Turn{
		RunID: "r-1", Message: ">>say before\n>>sleep 60000\n>>say " + mark, AbortAfter: "TEXT_MESSAGE_CONTENT",
	})
	seen := aguidriver.Run(t, conversation)[0]
	if !seen.Aborted {
		t.Fatalf("the client did not go away: %v (%s)", seen.Types(), seen.Error)
	}
	r := c.canonical(t, seen)
	if end := r.cancelled(t); end.Reason != "disconnect" || end.SideEffects != "none" {
		t.Errorf("cancelled as %+v", end)
	}
	if strings.Contains(r.text(t), mark) {
		t.Errorf("it spoke on: %q", r.text(t))
	}
	c.tell(t, "What do you remember?")
}

// A run that is cancelled through the API ends as cancelled for the client that
// streams it.
func TestTheRealAGUIClientSeesACancel(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c, conversation := w.agui(t,
		aguidriver.Turn{RunID: "r-1", Message: ">>say before\n>>sleep 60000"},
		aguidriver.Turn{RunID: "r-2", Message: ">>say going on"},
	)
	done := make(chan error, 1)
	go func() { done <- w.cancelWhenItSpeaks(t.Context(), c.conversation) }()
	seen := aguidriver.Run(t, conversation)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if end := seen[0].Terminal(); end.Type() != "RUN_FINISHED" || end.Outcome() != "cancelled" {
		t.Errorf("ended as %v (%s)", end, seen[0].Error)
	}
	if end := c.canonical(t, seen[0]).cancelled(t); end.Reason != "client_request" {
		t.Errorf("cancelled as %+v", end)
	}
	aguiFinished(t, seen[1], "r-2", c.conversation)
}

// cancelWhenItSpeaks cancels the run of a conversation once it has said something.
func (w *world) cancelWhenItSpeaks(ctx context.Context, conversation string) error {
	ctx, cancel := context.WithTimeout(ctx, conditionTimeout)
	defer cancel()
	return stack.Until(ctx, func() (bool, error) {
		id, err := w.findRun(ctx, conversation)
		if err != nil || id == "" {
			return false, err
		}
		status, err := w.user.Run(ctx, id)
		if err != nil || status.Events < 3 {
			return false, err
		}
		_, err = w.user.Cancel(ctx, id)
		return err == nil, err
	})
}

// findRun gives the active run of a conversation, or "". A client of AG-UI learns
// its id from its stream alone, so others have to look among the bindings.
func (w *world) findRun(ctx context.Context, conversation string) (string, error) {
	for after := ""; ; {
		page, next, err := w.operator.Bindings(ctx, after)
		if err != nil {
			return "", err
		}
		for _, b := range page {
			if b.Run == nil {
				continue
			}
			if status, err := w.user.Run(ctx, b.Run.RunID); err == nil && status.ConversationID == conversation {
				return b.Run.RunID, nil
			}
		}
		if after = next; next == "" {
			return "", nil
		}
	}
}

// The same client, where the server refuses it before a stream begins.
func TestTheRealAGUIClientIsRefusedInPlainHTTP(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	_, conversation := w.agui(t, aguidriver.Turn{RunID: "r-1", Message: "hello"})
	nobody := conversation
	nobody.HeaderFile = ""
	other := conversation
	other.URL = w.API + "/api/v1/agents/nobody/agui"
	seen := aguidriver.RunAll(t, nobody, other)
	for i, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		s := seen[i][0]
		if len(s.Events) > 0 && s.Events[0].Type() == "RUN_STARTED" {
			t.Errorf("a refused client saw %v", s.Types())
		}
		if !strings.Contains(s.Error, http.StatusText(status)) && !strings.Contains(s.Error, strconv.Itoa(status)) {
			t.Errorf("the client was told %q, want %d", s.Error, status)
		}
	}
}
