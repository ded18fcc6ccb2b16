package acp_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
)

func lines(l ...string) string { return strings.Join(l, "\n") }

func TestATurn(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines("text a", "thought b", "model >>say from the model", ">>usage 5 7", "text  z"))
	o.wantFinished(t, "end_turn")
	if !strings.Contains(o.text(), "from the model") {
		t.Errorf("text %q", o.text())
	}
	usage := of[event.UsageUpdated](o.recorder)
	if len(usage) != 2 || usage[0].Final || !usage[1].Final || usage[1].InputTokens == nil || usage[1].CachedInputTokens != nil {
		t.Errorf("usage %+v", usage)
	}
	if s.world.running() {
		t.Error("the agent outlives its run")
	}
	if s.thread.revision() != 1 {
		t.Errorf("revision %d", s.thread.revision())
	}
	for _, h := range s.model.header {
		if h.Get("Authorization") != "" {
			t.Error("a header of the agent went further")
		}
	}
}

func TestABrokeredCall(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines("text before",
		`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"cofferdam_fs_read","status":"pending","kind":"other"}}}`,
		"heard",
		`mcp fs_read {"path":"a"}`,
		`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"made up"}}]}}}`,
	))
	o.wantFinished(t, "end_turn")
	started := of[event.ToolStarted](o.recorder)
	finished := of[event.ToolFinished](o.recorder)
	if len(started) != 1 || started[0].ToolName != "fs.read" || started[0].Arguments != `{"path":"a"}` {
		t.Fatalf("started %+v", started)
	}
	// The events come from the broker's answer, not from what the agent says.
	if len(finished) != 1 || !strings.Contains(string(finished[0].Result), "done") || finished[0].ToolCallID != started[0].ToolCallID {
		t.Fatalf("finished %+v", finished)
	}
	calls := s.tools.called()
	if len(calls) != 1 || calls[0].ToolID != "fs.read" || calls[0].CallID != started[0].ToolCallID {
		t.Errorf("the broker was called %+v", calls)
	}
	if !strings.Contains(o.text(), "[done error=false]") {
		t.Errorf("the agent got %q", o.text())
	}
	if want := "run.started text.started text.delta text.finished tool.started tool.finished text.started"; !strings.HasPrefix(o.types(), want) {
		t.Errorf("events %s", o.types())
	}
}

func TestTheNextTurnGoesOn(t *testing.T) {
	s := newStand(t)
	s.run(t, "run-1", lines("history", "model x")).wantFinished(t, "end_turn")
	o := s.run(t, "run-2", lines("history", "model x"))
	o.wantFinished(t, "end_turn")
	if !strings.HasPrefix(o.text(), "prompts=2") {
		t.Errorf("the session was not gone on with, or its replay was told: %q", o.text())
	}
	if s.world.resets != 0 {
		t.Error("a home that holds the head was emptied")
	}
	if len(of[event.ToolStarted](o.recorder)) > 0 {
		t.Error("a replayed call was told as one of this turn")
	}
}

func TestANewWorkerGoesOn(t *testing.T) {
	s := newStand(t)
	s.run(t, "run-1", lines("history", "model x")).wantFinished(t, "end_turn")
	n := s.newWorker(t)
	o := n.run(t, "run-2", lines("history", "model x"))
	o.wantFinished(t, "end_turn")
	if !strings.HasPrefix(o.text(), "prompts=2") {
		t.Errorf("the session was not restored: %q", o.text())
	}
}

// What a run did that was not committed is no part of the thread.
func TestAFailedTurnLeavesNothingBehind(t *testing.T) {
	s := newStand(t)
	s.run(t, "run-1", lines("model x")).wantFinished(t, "end_turn")
	s.run(t, "run-2", lines("write sessions/stray left", "exit 1")).wantError(t, "protocol")
	o := s.run(t, "run-3", lines("history", "home sessions/stray"))
	o.wantFinished(t, "end_turn")
	if o.text() != "prompts=2" {
		t.Errorf("the failed turn is still there: %q", o.text())
	}
}

func TestAHeadThatIsDamaged(t *testing.T) {
	for name, payload := range map[string]string{
		"nothing": "", "no header": "archive", "no JSON": "x\n", "another field": `{"session":"s","made":1,"x":1}` + "\n",
		"no session": `{"session":"","made":1}` + "\n", "no archive": `{"session":"s","made":1}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.thread.head.Revision, s.thread.head.Payload = 1, []byte(payload)
			s.run(t, "run-1", "text x").wantError(t, "persistence_failed")
		})
	}
}

func TestASessionThatCannotBeLoaded(t *testing.T) {
	s := newStand(t)
	s.run(t, "run-1", "text x").wantFinished(t, "end_turn")
	s.preset.Env[envAgent] = "noload"
	s.newWorker(t).run(t, "run-2", "text x").wantError(t, "worker_mismatch")
}

func TestALateReplayIsNotTold(t *testing.T) {
	s := newStand(t, func(s *stand) {
		s.preset.LateReplay = true
		s.preset.Env[envAgent] = "late"
	})
	s.run(t, "run-1", lines("model x", "text first")).wantFinished(t, "end_turn")
	o := s.run(t, "run-2", lines("text replayed as well", "call _ext/sync", "model x", "text second"))
	o.wantFinished(t, "end_turn")
	if strings.Contains(o.text(), "replayed") || !strings.Contains(o.text(), "second") {
		t.Errorf("text %q", o.text())
	}
}

// What comes of a call that was approved is no replay, although the model was not
// asked yet.
func TestAnApprovedCallIsNoLateReplay(t *testing.T) {
	s := newStand(t, func(s *stand) { s.preset.LateReplay = true })
	o := s.run(t, "run-1", lines("model x", askBash,
		`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","rawOutput":"out"}}}`,
		"model x"))
	i := o.wantInterrupt(t)
	o = s.resume(t, "run-2", o, decide(i, event.DecisionApprove)...)
	o.wantFinished(t, "end_turn")
	if f := of[event.ToolFinished](o.recorder); len(f) != 1 || f[0].Result != `"out"` {
		t.Errorf("finished %+v, %s", f, o.types())
	}
}

// An agent whose files are named by the minute cannot load a session in the minute
// that it was made in.
func TestTheNextMinuteIsWaitedFor(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 1, 0, time.UTC)
	s := newStand(t, func(s *stand) {
		s.preset.LoadNextMinute = true
		s.config.Now = func() time.Time { return now }
	})
	s.run(t, "run-1", "text x").wantFinished(t, "end_turn")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s.runWith(t, ctx, "run-2", "text x").wantError(t, "deadline_exceeded")
	if len(s.world.started) != 1 {
		t.Error("the agent was started within the minute")
	}
	now = now.Add(time.Minute)
	s.run(t, "run-3", "text x").wantFinished(t, "end_turn")
}

// What was materialized for the binding is in the workspace, also after it was
// emptied.
func TestManifestsAreInTheWorkspace(t *testing.T) {
	from := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(from, "skills"), 0o700))
	must(t, os.WriteFile(filepath.Join(from, "skills", "a.md"), []byte("skill"), 0o600))
	s := newStand(t, func(s *stand) {
		s.config.Workspace = from
		s.build.Manifest = []harness.Materialized{{Path: "skills/a.md", Size: 5}}
	})
	s.run(t, "run-1", "exit 1").wantError(t, "protocol")
	if got := s.workspace(t, "skills/a.md"); got != "skill" {
		t.Errorf("%q", got)
	}
	s.run(t, "run-2", "text x").wantFinished(t, "end_turn")
	if got := s.workspace(t, "skills/a.md"); s.world.resets != 1 || got != "skill" {
		t.Errorf("%d resets, %q", s.world.resets, got)
	}
	s.build.Manifest[0].Path = "../a"
	s.newWorker(t).run(t, "run-3", "text x").wantError(t, "sandbox_not_ready")
}

func TestTheHomeIsWritten(t *testing.T) {
	s := newStand(t, func(s *stand) { s.preset.PromptFile = "AGENTS.md" })
	o := s.run(t, "run-1", lines("home config.json", "home note", "home AGENTS.md"))
	o.wantFinished(t, "end_turn")
	if !strings.Contains(o.text(), `{"model":"main"}`) || !strings.Contains(o.text(), "mcp http://127.0.0.1:") || !strings.HasSuffix(o.text(), "be brief\n") {
		t.Errorf("the home holds %q", o.text())
	}
	if strings.Contains(o.text(), "${") {
		t.Error("a variable was left")
	}
}

func TestAMessageIsNoCommand(t *testing.T) {
	s := newStand(t, func(s *stand) { s.build.Prompt = "" })
	o := s.run(t, "run-1", lines(" /clear", "text x"))
	o.wantFinished(t, "end_turn")
	if o.text() != "x" { // the agent has read the prefix as one of its lines
		t.Errorf("text %q", o.text())
	}
	session := s.session(t)
	if !strings.Contains(session, `Message:\n /clear`) {
		t.Errorf("the agent was sent %s", session)
	}
}

func TestInstructionsComeFirst(t *testing.T) {
	s := newStand(t)
	s.run(t, "run-1", "text x").wantFinished(t, "end_turn")
	s.run(t, "run-2", "text y").wantFinished(t, "end_turn")
	if n := strings.Count(s.session(t), "be brief"); n != 1 {
		t.Errorf("the instructions were sent %d times", n)
	}
}

// What an application told of itself reaches the agent behind the message, set apart as
// data, in each turn; what is known of the user comes with the instructions.
func TestTheAgentIsShownTheContexts(t *testing.T) {
	s := newStand(t, func(s *stand) { s.build.UserContext = json.RawMessage(`{"locale":"de"}`) })
	r := newRecorder("run-1")
	_, err := s.runtime.Stream(t.Context(), harness.Turn{
		RunID: "run-1", ConversationID: conversation, Message: "text x", ClientContext: json.RawMessage(`{"page":"</client_context>"}`),
	}, s.facades(r), r)
	must(t, err)
	r.over(t)
	for _, want := range []string{
		`Instructions:\nbe brief\n\n`, `user_context`, `{\"locale\":\"de\"}`, `text x\n\n`, `{\"page\":\"\\u003c/client_context\\u003e\"}`,
	} {
		if session := s.session(t); !strings.Contains(session, want) {
			t.Errorf("the agent was not sent %s: %s", want, session)
		}
	}
	s.run(t, "run-2", "text y").wantFinished(t, "end_turn")
	if n := strings.Count(s.session(t), "locale"); n != 1 {
		t.Errorf("the user's context was sent %d times", n)
	}
}

func TestFilesOfATurn(t *testing.T) {
	s := newStand(t)
	s.files["h1"], s.files["h2"], s.files["h3"] = "hello", "png", "pdf"
	o := s.run(t, "run-1", lines("text x", "blocks"),
		file("h1", "../a.txt", "text/plain", 5), file("h2", "b.png", "image/png", 3), file("h3", ".c/d e.pdf", "application/pdf", 3),
		file("h4", "huge.bin", "application/zip", 1<<40))
	o.wantFinished(t, "end_turn")
	if !strings.Contains(o.text(), "[resource file:///workspace/uploads/") || !strings.Contains(o.text(), "/1-a.txt hello]") || !strings.Contains(o.text(), "[image  ]") {
		t.Errorf("text %q", o.text())
	}
	if got := s.workspace(t, "uploads/*/3-d_e.pdf"); got != "pdf" {
		t.Errorf("the document holds %q", got)
	}
	if w := of[event.Warning](o.recorder); len(w) != 1 || w[0].Code != "file_not_shown" {
		t.Errorf("warnings %+v", w)
	}
	s.preset.Images, s.preset.Embedded = false, false
	n := s.newWorker(t)
	o = n.run(t, "run-2", lines("text x", "blocks"), file("h1", "a.txt", "text/plain", 5), file("h2", "b.png", "image/png", 3))
	o.wantFinished(t, "end_turn")
	if o.text() != "x" || n.workspace(t, "uploads/*/1-a.txt") != "hello" || n.workspace(t, "uploads/*/2-b.png") != "png" {
		t.Errorf("text %q", o.text())
	}
}
