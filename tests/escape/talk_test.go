package escape

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

const (
	// runTimeout bounds one run, on a machine that has other things to do.
	runTimeout = 2 * time.Minute
	// conditionTimeout bounds the wait for anything else.
	conditionTimeout = time.Minute
)

// talk is one conversation.
type talk struct {
	w                   *world
	agent, conversation string
}

func (w *world) talk(agent string) *talk { return &talk{w, agent, "c-" + rand.Text()} }

// turn is a run that has ended.
type turn struct {
	apiclient.Started
	events []apiclient.Event
}

// begin starts a run and returns once it is committed.
func (c *talk) begin(t *testing.T, message string, files ...apiclient.File) apiclient.Started {
	t.Helper()
	s, err := c.w.user.Start(t.Context(), apiclient.Start{AgentID: c.agent, ConversationID: c.conversation, Message: message, Files: files})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return s
}

// say runs a turn to its end, whatever that is.
func (c *talk) say(t *testing.T, message string, files ...apiclient.File) turn {
	t.Helper()
	return c.end(t, c.begin(t, message, files...))
}

// tell runs a turn that must finish, and gives what was said.
func (c *talk) tell(t *testing.T, message string) string {
	t.Helper()
	r := c.say(t, message)
	if r.last().Type != "run.finished" {
		t.Fatalf("did not finish: %s", r)
	}
	return r.text(t)
}

// end follows a run to its end, of which there is one, in the right place.
func (c *talk) end(t *testing.T, s apiclient.Started) turn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	events, err := c.w.user.Follow(ctx, s.RunID)
	if err != nil {
		t.Fatalf("stream of %s after %d events: %v", s.RunID, len(events), err)
	}
	r := turn{s, events}
	for i, e := range events {
		if last := i == len(events)-1; e.Terminal() != last || e.Sequence != uint64(i) {
			t.Errorf("event %d of %d is %d %s", i, len(events), e.Sequence, e.Type)
		}
	}
	if len(events) == 0 {
		t.Fatal("a log without an end")
	}
	return r
}

// terminal waits for the end of a run and gives it, without the rest of its log.
func (c *talk) terminal(t *testing.T, s apiclient.Started) (end apiclient.Event) {
	t.Helper()
	until(t, "end of "+s.RunID, func(ctx context.Context) (bool, error) {
		run, err := c.w.user.Run(ctx, s.RunID)
		if err != nil || run.Terminal == nil {
			return false, err
		}
		end = *run.Terminal
		return true, nil
	})
	return end
}

// last is the terminal.
func (r turn) last() apiclient.Event { return r.events[len(r.events)-1] }

// ending is what a terminal says, as "type code" or "type reason".
func (r turn) ending(t *testing.T) string {
	t.Helper()
	var d struct {
		Code   string `json:"code"`
		Reason string `json:"reason"`
	}
	decode(t, r.last().Data, &d)
	return strings.TrimSpace(r.last().Type + " " + d.Code + d.Reason)
}

// text is what the agent said.
func (r turn) text(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, e := range r.events {
		var d struct {
			Delta string `json:"delta"`
		}
		if e.Type == "text.delta" {
			decode(t, e.Data, &d)
			b.WriteString(d.Delta)
		}
		if e.Type == "text.finished" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// String is the log in short, for people.
func (r turn) String() string {
	const most = 12 // at either end
	var b strings.Builder
	for i, e := range r.events {
		if i < most || i >= len(r.events)-most {
			fmt.Fprintf(&b, "\n  %d %s %.300s", e.Sequence, e.Type, e.Data)
		}
	}
	return b.String()
}

func decode(t *testing.T, raw []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}

// encode gives JSON.
func encode(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// until waits for a condition.
func until(t *testing.T, what string, holds func(ctx context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), conditionTimeout)
	defer cancel()
	if err := stack.Until(ctx, func() (bool, error) { return holds(ctx) }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// sees waits until the run has said something.
func (c *talk) sees(t *testing.T, run apiclient.Started, typ string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), conditionTimeout)
	defer cancel()
	if err := c.w.user.Sees(ctx, run.RunID, typ); err != nil {
		t.Fatal(err)
	}
}

// cancel cancels a run, which must be confirmed.
func (c *talk) cancel(t *testing.T, run apiclient.Started) {
	t.Helper()
	got, err := c.w.user.Cancel(t.Context(), run.RunID)
	if err != nil || !got.Cancelled || !got.Confirmed {
		t.Errorf("cancel: %+v, %v", got, err)
	}
}

// worker gives the process of a binding's sandbox, once it has one.
func (c *talk) worker(t *testing.T, bindingID string) procs.Process {
	t.Helper()
	var p procs.Process
	until(t, "a sandbox of "+bindingID, func(ctx context.Context) (bool, error) {
		b, err := c.w.operator.Binding(ctx, bindingID)
		if err != nil || b.Sandbox == nil || b.Sandbox.PID == 0 {
			return false, err
		}
		p, err = procs.Read(b.Sandbox.PID)
		return err == nil && p.Alive(), err
	})
	return p
}
