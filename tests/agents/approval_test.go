package agents

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
)

const (
	approve = "approve"
	reject  = "reject"
)

// asked is a run that waits for a decision on one call.
type asked struct {
	turn

	state apiclient.InterruptState
	call  apiclient.ToolApproval
}

// ask runs a turn that must end in one question about one call of the tool.
func (c *talk) ask(t *testing.T, message, tool string) asked {
	t.Helper()
	a := c.asks(t, c.say(t, message), tool)
	if calls := a.calls(t); len(calls) != 1 || calls[0].how != "" {
		t.Errorf("want one open call: %s", a.turn)
	}
	return a
}

// asks checks that a run waits for a decision on one call of the tool, and that
// log and state say the same.
func (c *talk) asks(t *testing.T, r turn, tool string) asked {
	t.Helper()
	var end struct {
		InterruptID string `json:"interrupt_id"`
		Reason      string `json:"reason"`
	}
	r.ended(t, "run.interrupted", &end)
	var state apiclient.InterruptState
	until(t, "the interrupt of "+r.RunID, func(ctx context.Context) (_ bool, err error) { // a run whose terminal is out is concluded soon
		state, err = c.w.user.InterruptState(ctx, c.conversation, c.agentID)
		return state.Interrupt != nil, err
	})
	i := state.Interrupt
	if state.RunID != r.RunID || i.InterruptID != end.InterruptID || i.InterruptType != "tool_approval" || end.Reason != "tool_approval" || i.AgentID != c.agentID {
		t.Fatalf("the state is %+v, %+v; the run ended as %+v", state, i, end)
	}
	if len(i.ToolApprovals) != 1 || i.ToolApprovals[0].ToolName != tool {
		t.Fatalf("want one question about %s, got %+v", tool, i.ToolApprovals)
	}
	a := asked{r, state, i.ToolApprovals[0]}
	if !slices.Contains(a.call.AllowedDecisions, approve) || !slices.Contains(a.call.AllowedDecisions, reject) {
		t.Errorf("it may be decided by %v", a.call.AllowedDecisions)
	}
	for _, call := range r.calls(t) { // none where it was started by a run before
		if call.how == "" && (call.ID != a.call.ToolCallID || call.Tool != tool) {
			t.Errorf("want one open call of %s, %s: %s", tool, a.call.ToolCallID, r)
		}
	}
	return a
}

// resume decides, and returns once the run that goes on is committed.
func (c *talk) resume(t *testing.T, a asked, decision string) apiclient.Started {
	t.Helper()
	s, err := c.w.user.Resume(t.Context(), a.RunID, apiclient.Resume{
		InterruptID: a.state.Interrupt.InterruptID, Revision: a.state.Revision,
		Tools: []apiclient.ToolDecision{{ToolCallID: a.call.ToolCallID, Decision: decision}},
	})
	if err != nil {
		t.Fatalf("resume: %v", err)
	}
	return s
}

// decide runs the rest of an interrupted turn to its end.
func (c *talk) decide(t *testing.T, a asked, decision string) turn {
	t.Helper()
	r := c.end(t, c.resume(t, a, decision))
	if state, err := c.w.user.InterruptState(t.Context(), c.conversation, c.agentID); err != nil || state.Interrupt != nil {
		t.Errorf("after the decision it still waits: %+v, %v", state.Interrupt, err)
	}
	return r
}

// inWorkspace is the host's path of a file in the workspace of a sandbox.
func (c *talk) inWorkspace(t *testing.T, bindingID, name string) string {
	t.Helper()
	return filepath.Join("/proc", strconv.Itoa(c.worker(t, bindingID).PID), "root", "workspace", name)
}

// command has the agent leave a file of that name in the workspace, and say a word
// that stands in no command.
func (a agent) command(name string) (line, word string) {
	return ">>bash " + a.patiently("touch /workspace/"+name+"; expr 40000 + 2718"), "42718"
}

// patiently makes a command that an agent reads to its end.
func (a agent) patiently(command string) string {
	if a.mute {
		return command + "; sleep 1" // else what is said last may be lost
	}
	return command
}

// checkRan checks a run in which an approved call was made, once.
func (c *talk) checkRan(t *testing.T, r turn, callID, result string, mute bool) {
	t.Helper()
	r.finished(t)
	calls := r.calls(t)
	if len(calls) != 1 || calls[0].ID != callID || calls[0].how != "tool.finished" || !mute && !strings.Contains(string(calls[0].Result), result) {
		t.Errorf("want the call %s to finish with %q: %s", callID, result, r)
	}
	if len(r.of("tool.started")) > 0 {
		t.Errorf("the call had been started before: %s", r)
	}
	if said := r.text(t); !strings.Contains(said, result) {
		t.Errorf("the result did not come to the model: %q", said)
	}
}

// checkDenied checks a run in which a call was rejected.
func checkDenied(t *testing.T, r turn, callID string) {
	t.Helper()
	r.finished(t)
	calls := r.calls(t)
	if len(calls) != 1 || calls[0].ID != callID || calls[0].how != "tool.error" || calls[0].Code != "tool_denied" {
		t.Errorf("want the call %s to be denied: %s", callID, r)
	}
}

// What an agent asks its user, Cofferdam asks: the command is run once it was
// approved, and not before, by the agent that waits or, where that was killed, by
// another one.
func TestAQuestionOfTheAgentIsApproved(t *testing.T) {
	each(t, asking, func(t *testing.T, w *world, a agent) {
		for _, killed := range []bool{false, true} {
			c := w.talk(t, a, "")
			file := "approved-" + rand.Text()
			line, word := a.command(file)
			q := c.ask(t, line, a.shell())
			if !strings.Contains(string(q.call.ToolArgs), file) {
				t.Errorf("the question shows %s", q.call.ToolArgs)
			}
			if _, err := os.Stat(c.inWorkspace(t, q.BindingID, file)); !os.IsNotExist(err) {
				t.Errorf("it was run before anybody was asked: %v", err)
			}
			if killed {
				c.kill(t, q.BindingID)
			}
			r := c.decide(t, q, approve)
			if killed && a.mute {
				r.finished(t)
				continue
			}
			c.checkRan(t, r, q.call.ToolCallID, word, a.mute)
			if _, err := os.Stat(c.inWorkspace(t, r.BindingID, file)); err != nil {
				t.Errorf("killed %v: it was not run: %v", killed, err)
			}
		}
	})
}

// A rejected command is never run, and its conversation goes on.
func TestAQuestionOfTheAgentIsRejected(t *testing.T) {
	each(t, asking, func(t *testing.T, w *world, a agent) {
		for _, killed := range []bool{false, true} {
			c := w.talk(t, a, "")
			file := "rejected-" + rand.Text()
			line, _ := a.command(file)
			q := c.ask(t, line, a.shell())
			if killed {
				c.kill(t, q.BindingID)
			}
			r := c.decide(t, q, reject)
			checkDenied(t, r, q.call.ToolCallID)
			if _, err := os.Stat(c.inWorkspace(t, r.BindingID, file)); !os.IsNotExist(err) {
				t.Errorf("killed %v: it was run: %v", killed, err)
			}
			if killed {
				c.checkGoesOn(t)
			}
		}
	})
}

// Of a tool of the ToolBroker that needs an approval, a person is asked whatever
// the agent is: also one that never asks anything itself.
func TestABrokeredCallThatNeedsAnApproval(t *testing.T) {
	each(t, every, func(t *testing.T, w *world, a agent) {
		c := w.talk(t, a, careful)
		name, text := w.sample(t)
		q := c.ask(t, `>>call fs.read_text_file {"path":"`+name+`"}`, toolRead)
		r := c.decide(t, q, approve)
		c.checkRan(t, r, q.call.ToolCallID, text, false)
	})
}

// An agent that does not ask is not made to: its commands run unasked, within its
// sandbox.
func TestAnAgentThatNeverAsks(t *testing.T) {
	each(t, unasking, func(t *testing.T, w *world, a agent) {
		c := w.talk(t, a, "")
		file := "unasked-" + rand.Text()
		line, word := a.command(file)
		r := c.tell(t, line)
		calls := r.calls(t)
		if len(calls) != 1 || calls[0].Tool != a.shell() || calls[0].how != "tool.finished" || !strings.Contains(string(calls[0].Result), word) {
			t.Errorf("want one call of the shell: %s", r)
		}
		if said := r.text(t); !strings.Contains(said, word) {
			t.Errorf("the result did not come to the model: %q", said)
		}
		if _, err := os.Stat(c.inWorkspace(t, r.BindingID, file)); err != nil {
			t.Errorf("it was not run: %v", err)
		}
	})
}
