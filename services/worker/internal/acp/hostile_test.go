package acp_test

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
)

// Whatever an agent writes ends in one error with a code.
func TestHostileOutput(t *testing.T) {
	update := func(u string) string {
		return `raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":` + u + `}}`
	}
	for name, tc := range map[string]struct {
		say  string
		want fault.Code
	}{
		"garbage":             {"garbage", fault.Protocol},
		"a line of 11 MiB":    {"long", fault.Protocol},
		"a flood":             {"flood", fault.Protocol},
		"half a message":      {`raw {"jsonrpc":"2.0","method":"session/update","params":`, fault.Protocol},
		"a number":            {"raw 7", fault.Protocol},
		"neither":             {`raw {"jsonrpc":"2.0","id":1}`, fault.Protocol},
		"no update":           {`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":7}}`, fault.Protocol},
		"a call without id":   {update(`{"sessionUpdate":"tool_call","title":"x"}`), fault.Protocol},
		"a question of none":  {`raw {"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"sessionId":"$S","options":[]}}`, fault.Protocol},
		"exits":               {"exit 1", fault.Protocol},
		"exits well":          {"exit 0", fault.Protocol},
		"answers for another": {`raw {"jsonrpc":"2.0","id":4711,"result":{"stopReason":"end_turn"}}`, ""},
		"another session":     {`raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"other","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}`, ""},
		"a new kind":          {update(`{"sessionUpdate":"invented","x":[1]}`), ""},
		"an empty line":       {"raw  ", ""},
		"a chunk of nothing":  {update(`{"sessionUpdate":"agent_message_chunk","content":null}`), ""},
		"an extension":        {`raw {"jsonrpc":"2.0","method":"_x/y","params":{}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			o := s.run(t, "run-1", lines(tc.say))
			if tc.want == "" {
				o.wantFinished(t, "end_turn")
				if o.text() != "" {
					t.Errorf("text %q", o.text())
				}
			} else {
				o.wantError(t, tc.want)
			}
			if s.world.running() {
				t.Error("the agent outlives its run")
			}
			// And the binding is as good as before.
			s.run(t, "run-2", lines("model x", "text y")).wantFinished(t, "end_turn")
		})
	}
}

func TestAnAgentThatDoesNotStart(t *testing.T) {
	for mode, want := range map[string]fault.Code{
		"hang initialize": fault.SandboxNotReady, "hang session/new": fault.SandboxNotReady, "hang session/set_mode": fault.SandboxNotReady,
		"dies": fault.Protocol, "login": fault.HarnessOptionsInvalid, "old": fault.WorkerMismatch,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, func(s *stand) {
				s.preset.Env[envAgent], s.preset.GraceMS, s.preset.Mode = mode, 200, "default"
				if strings.HasPrefix(mode, "hang") {
					s.preset.StartupMS = 2000
				}
			})
			o := s.run(t, "run-1", "text x")
			o.wantError(t, want)
			if strings.Contains(o.err.Error(), "secret-of-the-agent") {
				t.Error("the agent's text is in the error")
			}
			if s.world.running() {
				t.Error("the agent outlives its run")
			}
		})
	}
	s := newStand(t, func(s *stand) { s.preset.Command = "/no/such/program" })
	s.run(t, "run-1", "text x").wantError(t, fault.HarnessOptionsInvalid)
	s = newStand(t)
	s.run(t, "run-1", "text x").wantFinished(t, "end_turn")
	s.preset.Env[envAgent], s.preset.StartupMS = "hang session/load", 2000
	s.newWorker(t).run(t, "run-2", "text x").wantError(t, fault.SandboxNotReady)
}

func TestALimitOfTheSandbox(t *testing.T) {
	s := newStand(t, func(s *stand) { s.world.limit = "memory" })
	s.run(t, "run-1", "exit 137").wantError(t, fault.SandboxLimit)
}

// Files and terminals of the client are not offered, and not given.
func TestTheClientGivesNothing(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines(
		`call fs/read_text_file {"sessionId":"x","path":"/etc/passwd"}`,
		`call fs/write_text_file {"sessionId":"x","path":"/etc/passwd","content":"x"}`,
		`call terminal/create {"sessionId":"x","command":"ls"}`,
		"call craft/drainMidTurnQueue", "call _ext/thing", "call elicitation/create"))
	o.wantFinished(t, "end_turn")
	answers := strings.Split(strings.TrimSpace(o.text()), "\n")
	if len(answers) != 6 {
		t.Fatalf("%q", answers)
	}
	for i, a := range answers[:5] {
		if !strings.Contains(a, "-32601") {
			t.Errorf("request %d was answered %s", i, a)
		}
	}
}

func TestTextOfAnyKind(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines("raw "+`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$S","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\u0000b\ud800c`+"\xff"+`d"}}}}`,
		"text Model metadata for x not found", "text "+strings.Repeat("x", 200_000)))
	o.wantFinished(t, "end_turn")
	if want := "a\ufffdb\ufffdc\ufffdd" + strings.Repeat("x", 200_000); o.text() != want {
		t.Errorf("%d bytes of text, want %d", len(o.text()), len(want))
	}
}

func TestNothingOfTheAgentIsLogged(t *testing.T) {
	s := newStand(t)
	s.run(t, "run-1", lines("raw secret-of-the-agent")).wantError(t, fault.Protocol)
	s.run(t, "run-2", lines(`raw {"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"secret-of-the-agent"}}`, "error -1")).wantError(t, fault.Protocol)
	if strings.Contains(s.log.String(), "secret-of-the-agent") {
		t.Errorf("log %s", s.log)
	}
}

// A reader that is slow holds the agent back; no update is lost.
func TestManyUpdates(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", lines("many 5000"))
	o.wantFinished(t, "end_turn")
	if !strings.HasSuffix(o.text(), " 4998 4999 ") {
		t.Error("an update was lost")
	}
}

func TestCleanup(t *testing.T) {
	s := newStand(t)
	o := s.run(t, "run-1", `ask t1 bash execute {"command":"ls"}`)
	o.wantInterrupt(t)
	if !s.world.running() {
		t.Fatal("nothing is held")
	}
	for range 2 {
		must(t, s.runtime.Cleanup(t.Context()))
	}
	if s.world.running() {
		t.Error("the agent outlives the worker")
	}
}
