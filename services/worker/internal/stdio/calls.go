package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

const (
	// atOnce is how many questions of a program may be under way. Nothing more is
	// read from it until one is answered.
	atOnce = 16
	// maxArguments of a call: they have to stand in one event.
	maxArguments = event.MaxEventBytes - 16<<10
)

// asked are the questions that are under way, each in a goroutine.
type asked struct {
	sync.WaitGroup
	running atomic.Int32
	places  chan struct{}
	made    int // calls of tools
}

// Busy reports whether any is.
func (a *asked) Busy() bool { return a.running.Load() > 0 }

// ask carries a question out and sends what it gives to the program. An error of
// do ends the turn.
func (t *turn) ask(ctx context.Context, do func(context.Context) (any, error)) error {
	if t.asked.places == nil {
		t.asked.places = make(chan struct{}, atOnce)
	}
	select {
	case t.asked.places <- struct{}{}:
	case <-ctx.Done():
		return fault.From(ctx.Err(), "stdio.ask")
	}
	t.asked.running.Add(1)
	t.asked.Go(func() {
		var err error
		defer func() { // the worker recovers only in the goroutine that it gave
			if v := recover(); v != nil {
				err = fault.Wrap(fmt.Errorf("panic of type %T\n%s", v, debug.Stack()), fault.Internal, "stdio.ask")
			}
			if err != nil {
				t.fail(err)
			}
			<-t.asked.places
		}()
		var answer any
		answer, err = do(ctx)
		// The program may end its turn as soon as it has read the answer.
		t.asked.running.Add(-1)
		if err == nil {
			err = t.in.send(ctx, answer)
		}
	})
	return nil
}

// callTool makes a call through the broker and tells of it in events, which come
// from the broker's answers and from nothing else.
func (t *turn) callTool(ctx context.Context, m *toolCallMessage) error {
	const op = "stdio.callTool"
	tool, offered := t.tools[m.ToolID]
	args, decided := t.decided[m.ToolCallID]
	switch {
	case !event.ValidID(m.ToolCallID):
		return brokef("a tool call without an id of the contract")
	case decided:
		if !offered || m.Arguments != "" && !same(m.Arguments, args) {
			return brokef("another call than the one that was decided on")
		}
		delete(t.decided, m.ToolCallID)
	case t.brokered[m.ToolCallID] || t.drafted[m.ToolCallID]:
		return brokef("a second call under one id")
	case m.Arguments == "":
		return brokef("a tool call without arguments")
	default:
		args = m.Arguments
	}
	t.brokered[m.ToolCallID] = true
	t.asked.made++
	var refusal *fault.Error
	switch {
	case !offered:
		refusal = fault.New(fault.ToolNotAllowed, op)
	case len(args) > maxArguments:
		refusal = fault.New(fault.ToolArgumentsInvalid, op, fault.Detail("arguments: at most 240 KiB"))
	}
	if refusal != nil { // nothing has begun: there is nothing to tell
		warning := event.Warning{Code: string(refusal.Code()), Message: "The harness asked for a tool call that was not made."}
		if err := t.emit.Emit(ctx, event.Draft{Namespace: m.Namespace, Data: warning}); err != nil {
			return err
		}
		return t.ask(ctx, func(context.Context) (any, error) { return toolFailure(m.ToolCallID, refusal), nil })
	}
	if !decided {
		started := event.ToolStarted{ToolCallID: m.ToolCallID, ToolName: tool.ID, Arguments: args, ParentMessageID: m.ParentMessageID}
		if err := t.emit.Emit(ctx, event.Draft{Namespace: m.Namespace, Data: started}); err != nil {
			return err
		}
	}
	if t.asked.made > t.construction.Limits.ToolCalls {
		refusal = fault.New(fault.Capacity, op, fault.Detail("the run has used up its tool calls"))
	}
	return t.ask(ctx, func(ctx context.Context) (any, error) {
		if refusal != nil {
			return t.toolError(ctx, m, refusal)
		}
		res, err := t.Tools.Call(ctx, harness.ToolCall{CallID: m.ToolCallID, ToolID: tool.ID, Arguments: json.RawMessage(args)})
		if err != nil {
			return t.toolError(ctx, m, err)
		}
		value, _ := event.ProjectJSON(res.Result, event.MaxResultBytes)
		finished := event.ToolFinished{ToolCallID: m.ToolCallID, Result: value, ResultRef: res.Ref}
		if err := t.emit.Emit(ctx, event.Draft{Namespace: m.Namespace, Data: finished}); err != nil {
			return nil, err
		}
		return toolResult{Type: "tool_result", ToolCallID: m.ToolCallID, Result: json.RawMessage(value), IsError: res.IsError}, nil
	})
}

// same reports whether two objects have the same text but for blanks.
func same(a, b event.Object) bool {
	var left event.Object
	err := left.UnmarshalJSON([]byte(b))
	return err == nil && a == left
}

// toolError ends the call as an error. What says that this run may do nothing
// more ends the turn; anything else the program may know.
func (t *turn) toolError(ctx context.Context, m *toolCallMessage, err error) (any, error) {
	const op = "stdio.callTool"
	if ctx.Err() != nil {
		return nil, fault.From(ctx.Err(), op)
	}
	f := fault.From(err, op)
	if endsRun(f) {
		return nil, f
	}
	e := event.ToolError{ToolCallID: m.ToolCallID, Code: string(f.Code()), Message: f.Code().Message(), Retryable: f.Code().Retryable()}
	if err := t.emit.Emit(ctx, event.Draft{Namespace: m.Namespace, Data: e}); err != nil {
		return nil, err
	}
	return toolFailure(m.ToolCallID, f), nil
}

func toolFailure(id string, f *fault.Error) toolResult {
	return toolResult{Type: "tool_result", ToolCallID: id, Error: failure(f)}
}

func endsRun(f *fault.Error) bool {
	return slices.Contains([]fault.Code{fault.StaleLease, fault.Cancelled, fault.DeadlineExceeded, fault.CapabilityExpired}, f.Code())
}

// answerTo asks for something that has no event, and answers with it or with why
// not.
func (t *turn) answerTo(ctx context.Context, kind, id string, do func(context.Context, *answer) error) error {
	if !event.ValidID(id) {
		return brokef("a question without an id of the contract")
	}
	return t.ask(ctx, func(ctx context.Context) (any, error) {
		a := answer{Type: kind, ID: id}
		err := do(ctx, &a)
		if ctx.Err() != nil {
			return nil, fault.From(ctx.Err(), "stdio.answer")
		}
		if f := fault.From(err, "stdio.answer"); f != nil {
			if endsRun(f) {
				return nil, f
			}
			a = answer{Type: kind, ID: id, Error: failure(f)}
		}
		return a, nil
	})
}

func (t *turn) getMemory(ctx context.Context, m *memoryGetMessage) error {
	return t.answerTo(ctx, "memory_result", m.ID, func(ctx context.Context, a *answer) error {
		if err := t.memoryScope(m.Scope); err != nil {
			return err
		}
		r, err := t.Memory.Get(ctx, harness.MemoryScope(m.Scope), m.Key)
		a.Record = &record{Kind: r.Kind, ContentType: r.ContentType, Content: event.SanitizeText(string(r.Content)), Revision: r.Revision}
		return err
	})
}

func (t *turn) putMemory(ctx context.Context, m *memoryPutMessage) error {
	return t.answerTo(ctx, "memory_result", m.ID, func(ctx context.Context, a *answer) error {
		if err := t.memoryScope(m.Scope); err != nil {
			return err
		}
		written, err := t.Memory.Put(ctx, m.ID, harness.MemoryScope(m.Scope), m.Key, harness.MemoryRecord{
			Kind: m.Kind, ContentType: m.ContentType, Content: []byte(m.Content), Revision: m.ExpectedRevision,
		})
		a.Revision = written.Revision
		return err
	})
}

func (t *turn) memoryScope(scope string) error {
	if t.Memory == nil || !slices.Contains(t.construction.MemoryScopes, harness.MemoryScope(scope)) {
		return fault.New(fault.MemoryScopeDenied, "stdio.memory")
	}
	return nil
}

// upload uses up the first handle that takes the file.
func (t *turn) upload(ctx context.Context, m *uploadMessage) error {
	at := slices.IndexFunc(t.uploads, func(u harness.Upload) bool { return u.MaxBytes >= uint64(len(m.Data)) })
	var u harness.Upload
	if at >= 0 {
		u = t.uploads[at]
		t.uploads = slices.Delete(slices.Clone(t.uploads), at, at+1)
	}
	return t.answerTo(ctx, "upload_result", m.ID, func(ctx context.Context, a *answer) (err error) {
		if at < 0 {
			return fault.New(fault.RequestTooLarge, "stdio.upload", fault.Detail("uploads: none is left for a file of this size"))
		}
		a.ObjectID, err = t.Files.Write(ctx, u, event.SanitizeText(m.Name), m.MIMEType, m.Data)
		return err
	})
}

var errNoApproval = errors.New("a question that the interrupt policy does not allow")
