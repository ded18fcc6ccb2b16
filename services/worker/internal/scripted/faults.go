package scripted

import (
	"context"
	"errors"
	"strings"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// garbageStep emits what no event may have.
type garbageStep struct{ kind }

func (*garbageStep) play(ctx context.Context, a actor) error {
	return a.draft(ctx, event.TextStarted{MessageID: "not an id\x00\xff"})
}

// illegalStep emits drafts that are valid by themselves and against the rules of
// a run.
type illegalStep struct {
	kind
	What string `json:"what"`
}

// illegal sequences by name.
func illegal(what string) []event.Draft {
	root := func(data ...event.Data) (out []event.Draft) {
		for _, d := range data {
			out = append(out, event.Draft{Data: d})
		}
		return out
	}
	started := event.ToolStarted{ToolCallID: "c", ToolName: "fs.read", Arguments: event.EmptyObject}
	switch what {
	case "delta before its start":
		return root(event.TextDelta{MessageID: "m", Delta: "x"})
	case "started twice":
		return root(event.TextStarted{MessageID: "m"}, event.TextStarted{MessageID: "m"})
	case "finished twice":
		return root(event.TextStarted{MessageID: "m"}, event.TextFinished{MessageID: "m"}, event.TextFinished{MessageID: "m"})
	case "result without a call":
		return root(event.ToolFinished{ToolCallID: "c", Result: `1`})
	case "result and error":
		return root(started, event.ToolFinished{ToolCallID: "c", Result: `1`}, event.ToolError{ToolCallID: "c", Code: "internal", Message: "x"})
	case "run.started":
		return root(event.RunStarted{HarnessID: ID, AdapterVersion: Version})
	case "run.finished":
		return root(event.RunFinished{StopReason: "stop"})
	case "run.interrupted":
		return root(event.RunInterrupted{InterruptID: "i", Reason: event.InterruptedForHumanInput})
	case "namespace that is not open":
		return []event.Draft{{Namespace: []string{"nowhere"}, Data: event.TextStarted{MessageID: "m"}}}
	case "root entered":
		return root(started, event.NamespaceEntered{AgentID: "a", AgentName: "a", ParentToolCallID: "c"})
	case "text after an interrupt":
		return root(event.InterruptRequested{
			InterruptID: "i", InterruptType: event.InterruptFormInput, AgentID: "a", Prompt: "p", Fields: []event.FormField{{FieldName: "f", FieldType: "text"}},
		}, event.TextStarted{MessageID: "m"})
	default:
		return nil
	}
}

// Illegal are the names of the illegal sequences.
func Illegal() []string {
	return []string{
		"delta before its start", "started twice", "finished twice", "result without a call", "result and error", "run.started", "run.finished",
		"run.interrupted", "namespace that is not open", "root entered", "text after an interrupt",
	}
}

func (s *illegalStep) check() error {
	if illegal(s.What) == nil {
		return errors.New("what: one of the illegal sequences")
	}
	return nil
}

func (s *illegalStep) play(ctx context.Context, a actor) error {
	for _, d := range illegal(s.What) {
		if err := a.emit.Emit(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// floodStep emits deltas as fast as they are taken.
type floodStep struct {
	kind
	Events int `json:"events"`
	Bytes  int `json:"bytes,omitempty"`
}

func (s *floodStep) check() error {
	if s.Events < 1 || s.Bytes < 0 || s.Bytes > event.MaxDeltaBytes {
		return errors.New("events: at least 1; bytes: 0 to 65536")
	}
	return nil
}

func (s *floodStep) play(ctx context.Context, a actor) error {
	id := a.id("flood")
	if err := a.draft(ctx, event.TextStarted{MessageID: id}); err != nil {
		return err
	}
	delta := event.TextDelta{MessageID: id, Delta: strings.Repeat("x", max(s.Bytes, 1))}
	for range s.Events {
		if err := a.draft(ctx, delta); err != nil {
			return err
		}
	}
	return a.draft(ctx, event.TextFinished{MessageID: id})
}

// overrunStep commits and goes on emitting.
type overrunStep struct{ kind }

func (*overrunStep) play(ctx context.Context, a actor) error {
	if err := a.commit(ctx); err != nil {
		return err
	}
	if err := a.draft(ctx, event.TextStarted{MessageID: a.id("overrun")}); err == nil {
		return fault.New(fault.Internal, "scripted.overrun") // it must not have been taken
	}
	return errEnded
}

// ignoreCancelStep goes on for a while, whatever happens to its run.
type ignoreCancelStep struct {
	kind
	MS int `json:"ms"`
}

func (s *ignoreCancelStep) check() error { return checkMS(s.MS) }

func (s *ignoreCancelStep) play(_ context.Context, a actor) error {
	select {
	case <-time.After(time.Duration(s.MS) * time.Millisecond):
	case <-a.released:
	}
	return nil
}

// lateStep leaves a goroutine behind that emits once the run has ended.
type lateStep struct{ kind }

func (*lateStep) play(ctx context.Context, a actor) error {
	a.late.Go(func() {
		select {
		case <-ctx.Done():
		case <-a.released:
		}
		_ = a.draft(context.WithoutCancel(ctx), event.TextStarted{MessageID: a.id("late")}) // it is refused
	})
	return nil
}

type panicStep struct{ kind }

func (*panicStep) play(context.Context, actor) error { panic("a script says so") }

// hangStep never comes back, whatever happens to its run, until the worker ends.
type hangStep struct{ kind }

func (*hangStep) hostile() {}

func (*hangStep) play(_ context.Context, a actor) error {
	<-a.released
	return nil
}
