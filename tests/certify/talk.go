package certify

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

// patience bounds the wait for anything, on a machine that has other things to do.
const patience = 2 * time.Minute

// talk is one conversation of the user, by the first replica.
type talk struct {
	w                   *world
	agent, conversation string
}

func (w *world) talk(agent string) *talk { return &talk{w, agent, "certify-" + rand.Text()} }

// turn is a run that has ended.
type turn struct {
	apiclient.Started

	conversation string
	events       []apiclient.Event
}

// at begins a run by one of the replicas.
func (c *talk) at(ctx context.Context, replica int, s apiclient.Start) (apiclient.Started, error) {
	s.AgentID, s.ConversationID = c.agent, c.conversation
	return c.w.users[replica%len(c.w.users)].Start(ctx, s)
}

func (c *talk) begin(ctx context.Context, steps ...step) (apiclient.Started, error) {
	return c.at(ctx, 0, apiclient.Start{Message: c.w.phrase.script(steps...)})
}

// tell runs a turn that has to finish.
func (c *talk) tell(ctx context.Context, steps ...step) (turn, error) {
	run, err := c.begin(ctx, steps...)
	if err != nil {
		return turn{}, err
	}
	return c.w.finish(ctx, 0, run)
}

// end follows a run to its end, whatever that is.
func (w *world) end(ctx context.Context, replica int, run apiclient.Started) (turn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	events, err := w.users[replica%len(w.users)].Follow(ctx, run.RunID)
	if err == nil && len(events) == 0 {
		err = errors.New("a log without an end")
	}
	return turn{Started: run, events: events}, err
}

func (w *world) finish(ctx context.Context, replica int, run apiclient.Started) (turn, error) {
	r, err := w.end(ctx, replica, run)
	if err == nil && r.ending() != "run.finished" {
		err = fmt.Errorf("the run ended as %s", r.ending())
	}
	return r, err
}

// ending is what the terminal says, as "type code" or "type reason".
func (r turn) ending() string {
	last := r.events[len(r.events)-1]
	var d struct {
		Code   string `json:"code"`
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(last.Data, &d) // a terminal without either
	if last.Type == "run.finished" || last.Type == "run.interrupted" {
		return last.Type
	}
	return strings.TrimSpace(last.Type + " " + d.Code + d.Reason)
}

// speaks waits until the run has said something.
func (w *world) speaks(ctx context.Context, replica int, runID string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := w.users[replica%len(w.users)].Stream(ctx, runID, nil)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // nothing is left to read
	for {
		e, err := s.NextEvent()
		switch {
		case err != nil:
			return fmt.Errorf("waiting for a text: %w", err)
		case e.Type == "text.delta":
			return nil
		case e.Terminal():
			return fmt.Errorf("waiting for a text: the run ended as %s", turn{events: []apiclient.Event{e}}.ending())
		}
	}
}

// seat is where a binding works.
type seat struct {
	Binding, Claim, Instance, SPIFFEID string
	PID                                int
	Generation                         uint32
	// Alive says that the process is there.
	Alive bool
}

// seat finds the sandbox of a binding once it has one.
func (w *world) seat(ctx context.Context, bindingID string) (s seat, b apiclient.Binding, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = stack.Until(ctx, func() (bool, error) {
		b, err = w.operator.Binding(ctx, bindingID)
		return err == nil && b.Sandbox != nil && b.Sandbox.PID > 0 && b.Lease != nil, err
	})
	if err != nil {
		return s, b, fmt.Errorf("the sandbox of %s: %w", bindingID, err)
	}
	s = seat{bindingID, b.Lease.ClaimName, b.Sandbox.InstanceUID, b.Sandbox.SPIFFEID, b.Sandbox.PID, b.Generation, false}
	if p, err := procs.Read(s.PID); err == nil {
		s.Alive = p.Alive()
	}
	return s, b, nil
}

// cancel ends a run that a check has no more use for.
func (w *world) cancel(ctx context.Context, runID string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	got, err := w.users[0].Cancel(ctx, runID)
	if err == nil && !got.Cancelled {
		err = fmt.Errorf("cancel of %s: %+v", runID, got)
	}
	return err
}

// terminal waits for the end of a run without reading its stream.
func (w *world) terminal(ctx context.Context, run apiclient.Started) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var end string
	err := stack.Until(ctx, func() (bool, error) {
		got, err := w.users[0].Run(ctx, run.RunID)
		if err != nil || got.Terminal == nil {
			return false, err
		}
		end = turn{events: []apiclient.Event{*got.Terminal}}.ending()
		return true, nil
	})
	return end, err
}

// text is what the agent said.
func (r turn) text() string {
	var b strings.Builder
	for _, e := range r.events {
		var d struct {
			Delta string `json:"delta"`
		}
		if e.Type == "text.delta" && json.Unmarshal(e.Data, &d) == nil {
			b.WriteString(d.Delta)
		}
	}
	return b.String()
}

// patiently is tell for a moment in which a part of the stack may be starting again.
func (c *talk) patiently(ctx context.Context, steps ...step) (r turn, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r, stack.Until(ctx, func() (bool, error) {
		r, err = c.tell(ctx, steps...)
		return err == nil, err
	})
}
