package session

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
)

const delegatingTool = "builtin.delegate"

// tells is a ToolBroker whose tool delegates to an agent that does this.
type tells func(ctx context.Context, tell func(...event.Data) error) error

func (f tells) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	err := f(ctx, func(data ...event.Data) error {
		for _, d := range data {
			if err := c.Tell(ctx, event.Draft{Namespace: []string{c.CallID}, Data: d}); err != nil {
				return err
			}
		}
		return nil
	})
	return harness.ToolResult{Result: []byte(`{}`)}, err
}

// delegates is a worker whose harness makes one call, and does more meanwhile.
func delegates(t *testing.T, agent tells, meanwhile func(ctx context.Context, emit harness.Emitter) error, change ...func(*Config)) *worker {
	t.Helper()
	w := newWorker(t, change...)
	w.connector.more.Tools = agent
	b := right()
	b.Construction.Tools = []harness.Tool{{ID: delegatingTool, OfferedName: "delegate", InputSchema: []byte(`{"type":"object"}`), Delegates: true}}
	w.bind(t, b)
	w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		if err := emitAll(ctx, emit, event.ToolStarted{ToolCallID: "c", ToolName: delegatingTool, Arguments: event.EmptyObject}); err != nil {
			return harness.Result{}, err
		}
		if _, err := f.Tools.Call(ctx, harness.ToolCall{CallID: "c", ToolID: delegatingTool, Arguments: []byte(`{}`)}); err != nil {
			return harness.Result{}, err
		}
		if meanwhile != nil {
			if err := meanwhile(ctx, emit); err != nil {
				return harness.Result{}, err
			}
		}
		if err := emitAll(ctx, emit, event.ToolFinished{ToolCallID: "c", Result: `{}`}); err != nil {
			return harness.Result{}, err
		}
		return harness.Result{StopReason: "stop"}, f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
	})
	return w
}

func entered() event.Data {
	return event.NamespaceEntered{AgentID: "helper", AgentName: "Helper", ParentToolCallID: "c"}
}

// Whatever an agent does, the run of the harness that delegates goes on: what the
// rules refuse is left out, and what is left open is closed.
func TestWhatAnAgentDoesBreaksNoRun(t *testing.T) {
	for name, data := range map[string][]event.Data{
		"nothing":              {},
		"left open":            {entered(), event.TextStarted{MessageID: "x"}, event.ToolStarted{ToolCallID: "y", ToolName: "fs.read", Arguments: event.EmptyObject}},
		"never entered":        {event.TextStarted{MessageID: "x"}},
		"an id of the harness": {entered(), event.ToolFinished{ToolCallID: "c", Result: `1`}, event.ToolStarted{ToolCallID: "c", ToolName: "fs.read", Arguments: event.EmptyObject}},
		"a terminal":           {entered(), event.RunFinished{StopReason: "stop"}},
		"an interrupt":         {entered(), event.RunInterrupted{InterruptID: "i", Reason: event.InterruptedForHumanInput}},
		"started again":        {entered(), event.RunStarted{HarnessID: "x", AdapterVersion: "1"}},
		"no UTF-8":             {entered(), event.TextStarted{MessageID: "x"}, event.TextDelta{MessageID: "x", Delta: "\xff"}},
		"too large":            {entered(), event.TextStarted{MessageID: "x"}, event.TextDelta{MessageID: "x", Delta: strings.Repeat("x", event.MaxDeltaBytes+1)}},
		"ended twice":          {entered(), event.NamespaceExited{AgentID: "helper", ParentToolCallID: "c", Outcome: "success"}, event.NamespaceExited{AgentID: "helper", ParentToolCallID: "c", Outcome: "success"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := delegates(t, func(_ context.Context, tell func(...event.Data) error) error { return tell(data...) }, nil)
			if end, ok := ends(t, w.start(t, "run-1")).(event.RunFinished); !ok {
				t.Errorf("the run ended by %+v", end)
			}
		})
	}
}

// What an agent opens never takes the places of the harness.
func TestAnAgentLeavesRoom(t *testing.T) {
	w := delegates(t, func(_ context.Context, tell func(...event.Data) error) error {
		data := []event.Data{entered()}
		for i := range event.MaxOpenTools {
			data = append(data, event.ToolStarted{ToolCallID: fmt.Sprint("x", i), ToolName: "fs.read", Arguments: event.EmptyObject})
		}
		return tell(data...)
	}, func(ctx context.Context, emit harness.Emitter) error {
		for i := range event.MaxOpenTools/2 - 1 {
			id := fmt.Sprint("own", i)
			if err := emitAll(ctx, emit, event.ToolStarted{ToolCallID: id, ToolName: "fs.read", Arguments: event.EmptyObject}); err != nil {
				return err
			}
			defer func() { _ = emitAll(ctx, emit, event.ToolFinished{ToolCallID: id, Result: `1`}) }()
		}
		return nil
	})
	events := read(t, w.start(t, "run-1"))
	if _, ok := events[len(events)-1].Data.(event.RunFinished); !ok {
		t.Fatalf("the run ended by %+v", events[len(events)-1].Data)
	}
	opened, warnings := 0, 0
	for _, e := range events {
		switch e.Data.(type) {
		case event.ToolStarted:
			if len(e.Namespace) == 1 {
				opened++
			}
		case event.Warning:
			warnings++
		}
	}
	if opened < event.MaxOpenTools/2-1 || opened > event.MaxOpenTools/2 || warnings != 1 {
		t.Errorf("%d calls of the agent were told, with %d warnings", opened, warnings)
	}
}

// Also where a profile allows a run less than the contract does.
func TestAnAgentLeavesRoomInASmallRun(t *testing.T) {
	for name, b := range map[string]event.Bounds{"events": {RunEvents: 60}, "bytes": {RunBytes: 256 << 10}} {
		t.Run(name, func(t *testing.T) {
			w := delegates(t, func(_ context.Context, tell func(...event.Data) error) error {
				data := []event.Data{entered(), event.TextStarted{MessageID: "x"}, event.TextStarted{MessageID: "y"}}
				for range 100 {
					data = append(data, event.TextDelta{MessageID: "x", Delta: strings.Repeat("x", 4<<10)})
				}
				for range 100 { // and what still fits
					data = append(data, event.TextDelta{MessageID: "x", Delta: "x"})
				}
				return tell(data...)
			}, func(ctx context.Context, emit harness.Emitter) error {
				return say(ctx, emit, "own", strings.Repeat("y", 32<<10))
			},
				func(c *Config) { c.Bounds = b })
			if end, ok := ends(t, w.start(t, "run-1")).(event.RunFinished); !ok {
				t.Errorf("the run ended by %+v", end)
			}
		})
	}
}

// A harness may end a call that it does not wait for. What is told later is no part
// of its run.
func TestAHarnessDoesNotWaitForTheAgent(t *testing.T) {
	gone := make(chan struct{})
	late := make(chan error, 1)
	w := delegates(t, func(ctx context.Context, tell func(...event.Data) error) error {
		if err := tell(entered(), event.TextStarted{MessageID: "x"}); err != nil {
			return err
		}
		close(gone)
		<-ctx.Done()
		late <- tell(event.TextFinished{MessageID: "x"})
		return ctx.Err()
	}, nil)
	w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
		if err := emitAll(ctx, emit, event.ToolStarted{ToolCallID: "c", ToolName: delegatingTool, Arguments: event.EmptyObject}); err != nil {
			return harness.Result{}, err
		}
		calling, give := context.WithCancel(ctx)
		defer give()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = f.Tools.Call(calling, harness.ToolCall{CallID: "c", ToolID: delegatingTool, Arguments: []byte(`{}`)})
		}()
		<-gone
		if err := emitAll(ctx, emit, event.ToolError{ToolCallID: "c", Code: "tool_outcome_unknown", Message: "Given up."}); err != nil {
			return harness.Result{}, err
		}
		give()
		<-ended
		return harness.Result{StopReason: "stop"}, f.Thread.Commit(ctx, harness.Codec{}, 0, nil)
	})
	if end, ok := ends(t, w.start(t, "run-1")).(event.RunFinished); !ok {
		t.Errorf("the run ended by %+v", end)
	}
	if err := <-late; err != nil {
		t.Errorf("what was told too late: %v", err)
	}
}
