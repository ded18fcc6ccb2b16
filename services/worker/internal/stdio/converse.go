package stdio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// broke is the fault of a program that does not keep to the line protocol. The
// cause is for the log: nothing of it reaches an event.
func broke(cause error) error { return fault.Wrap(cause, fault.Protocol, "stdio.converse") }

func brokef(format string, args ...any) error { return broke(fmt.Errorf(format, args...)) }

// converse takes what the program says until it says how its turn ends. A program
// that says nothing ends at the deadline of its run, and one that does not even
// begin, earlier.
func (t *turn) converse(ctx context.Context) (ending, error) {
	startup := time.NewTimer(time.Duration(t.Preset.StartupTimeout))
	defer startup.Stop()
	exited := t.program.Done()
	for {
		select {
		case <-ctx.Done():
			return ending{}, fault.From(ctx.Err(), "stdio.converse")
		case <-startup.C:
			if !t.ready {
				return ending{}, brokef("not ready within %s", time.Duration(t.Preset.StartupTimeout))
			}
		case <-exited:
			// What it left behind would keep its output open for ever.
			exited = nil
			if err := t.kill(ctx, 0); err != nil {
				return ending{}, err
			}
		case l, more := <-t.out.lines:
			if !more || errors.Is(l.err, errCutOff) {
				return ending{}, t.ended(ctx)
			}
			if l.err != nil {
				return ending{}, broke(l.err)
			}
			m, err := decode(l.text)
			if err != nil {
				return ending{}, broke(err)
			}
			if end, err := t.take(ctx, m); end != nil || err != nil {
				return orZero(end), err
			}
		}
	}
}

func orZero(e *ending) ending {
	if e == nil {
		return ending{}
	}
	return *e
}

// ended is why a program ended that had not said how its turn ends.
func (t *turn) ended(ctx context.Context) error {
	if err := t.kill(ctx, 0); err != nil {
		return err
	}
	select {
	case <-t.program.Done():
	case <-ctx.Done():
		return fault.From(ctx.Err(), "stdio.ended")
	}
	e := t.program.Exit()
	if e.Limit != "" {
		return fault.Wrap(fmt.Errorf("program ended by its limit of %s", e.Limit), fault.SandboxLimit, "stdio.ended")
	}
	return brokef("program ended before its turn: exit code %d, signal %q", e.Code, e.Signal)
}

// quiet waits for the end of the output, in which nothing more may come, so that
// what ends the turn is known to have been the last word.
func (t *turn) quiet(ctx context.Context) error {
	t.finish()
	grace := time.NewTimer(exitGrace)
	defer grace.Stop()
	exited := t.program.Done()
	for {
		var err error
		select {
		case <-ctx.Done():
			return fault.From(ctx.Err(), "stdio.quiet")
		case <-grace.C:
			err = t.kill(ctx, killGrace)
		case <-exited:
			exited = nil
			err = t.kill(ctx, 0)
		case _, more := <-t.out.lines:
			if !more {
				return nil
			}
			err = brokef("output after the end of the turn")
		}
		if err != nil {
			return err
		}
	}
}

// take carries a message out. It gives an ending where the message is one.
func (t *turn) take(ctx context.Context, m message) (*ending, error) {
	if ready, ok := m.(*readyMessage); ok {
		if t.ready || ready.Protocol != Protocol {
			return nil, brokef("ready twice, or for another protocol than %d", Protocol)
		}
		t.ready = true
		return nil, nil //nolint:nilnil // the turn goes on
	}
	if m == nil {
		return nil, nil //nolint:nilnil // a delta of nothing
	}
	if !t.ready {
		return nil, brokef("a message before ready")
	}
	switch m := m.(type) {
	case *eventMessage:
		return nil, t.emitDraft(ctx, m.draft)
	case *toolCallMessage:
		return nil, t.callTool(ctx, m)
	case *memoryGetMessage:
		return nil, t.getMemory(ctx, m)
	case *memoryPutMessage:
		return nil, t.putMemory(ctx, m)
	case *uploadMessage:
		return nil, t.upload(ctx, m)
	case *stateMessage:
		return nil, t.addState(m.Data)
	case *logMessage:
		t.log(ctx, m.Text)
		return nil, nil //nolint:nilnil // the turn goes on
	case *commitMessage:
		return t.endsWith(m.State, ending{stopReason: m.StopReason})
	case *interruptMessage:
		return t.endsWith(m.State, ending{interrupt: m})
	case *errorMessage:
		return nil, t.failed(m)
	default:
		return nil, broke(errUnknownMessage)
	}
}

// emitDraft passes an event of the program on. Those that others decide on it may
// not make up: the run's own, the interrupt, and what belongs to a brokered tool.
func (t *turn) emitDraft(ctx context.Context, d event.Draft) error {
	switch data := d.Data.(type) {
	case event.RunStarted, event.RunFinished, event.RunInterrupted, event.RunCancelled, event.RunError, event.InterruptRequested:
		return brokef("draft of %s", d.Data.Type())
	case event.ToolStarted:
		if _, offered := t.tools[data.ToolName]; offered || t.brokered[data.ToolCallID] {
			return brokef("draft of a brokered tool's call")
		}
		t.drafted[data.ToolCallID] = true
	case event.ToolArgumentsDelta:
		return t.emitOwn(ctx, d, data.ToolCallID)
	case event.ToolFinished:
		return t.emitOwn(ctx, d, data.ToolCallID)
	case event.ToolError:
		return t.emitOwn(ctx, d, data.ToolCallID)
	}
	return t.emit.Emit(ctx, d)
}

func (t *turn) emitOwn(ctx context.Context, d event.Draft, toolCallID string) error {
	if !t.drafted[toolCallID] {
		return brokef("draft of a call that is not the program's own")
	}
	return t.emit.Emit(ctx, d)
}

// addState adds a piece of the state.
func (t *turn) addState(piece []byte) error {
	if len(t.state)+len(piece) > t.mostState() {
		return fault.New(fault.StateTooLarge, "stdio.state")
	}
	t.state = append(t.state, piece...)
	return nil
}

// contractState is the largest state of the contract, in bytes.
const contractState = blob.MaxBytes

// mostState is how large the program's part of the state may be.
func (t *turn) mostState() int {
	most := contractState
	if n := t.construction.Limits.StateBytes; n > 0 {
		most = min(n, contractState)
	}
	return most - 1
}

func (t *turn) endsWith(state []byte, e ending) (*ending, error) {
	if t.asked.Busy() {
		return nil, brokef("end of the turn with a call under way")
	}
	if err := t.addState(state); err != nil {
		return nil, err
	}
	e.state = t.state
	return &e, nil
}

// mayFail are the codes that a program may end its turn with. Others are not for
// it to say.
func mayFail() []fault.Code {
	return []fault.Code{
		fault.InvalidRequest, fault.RequestTooLarge, fault.StateTooLarge, fault.RateLimited, fault.Capacity, fault.ModelFailed, fault.ModelUnavailable,
		fault.ToolUnavailable, fault.ToolOutcomeUnknown, fault.PersistenceFailed, fault.NotImplemented, fault.Internal,
	}
}

func (t *turn) failed(m *errorMessage) error {
	const maxRetryAfter = 3600
	if !slices.Contains(mayFail(), m.Code) || m.RetryAfterSeconds > maxRetryAfter {
		return brokef("error with a code that is not the program's to say")
	}
	return fault.New(m.Code, "stdio.program", fault.RetryAfter(time.Duration(m.RetryAfterSeconds)*time.Second))
}
