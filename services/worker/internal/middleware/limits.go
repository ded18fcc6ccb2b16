package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// Bounds of options.
const (
	maxCalls       = 1000
	minResultBytes = 64
	maxResultBytes = 1 << 20
	maxToolIDs     = 256
	maxToolID      = 193
)

// callLimit refuses the calls of a run that come after max others, of one tool
// or of all. A call that is repeated under its id counts once.
func callLimit(raw json.RawMessage) (step, error) {
	var o struct {
		ToolID string `json:"tool_id,omitempty"`
		Max    *int   `json:"max"`
	}
	if err := options(raw, &o); err != nil {
		return nil, err
	}
	switch {
	case o.Max == nil || *o.Max < 0 || *o.Max > maxCalls:
		return nil, fmt.Errorf("max: 0 to %d", maxCalls)
	case o.ToolID != "" && !isToolID(o.ToolID):
		return nil, errors.New("tool_id: not a tool id")
	}
	return func(next harness.ToolCaller) harness.ToolCaller {
		return &limitedCalls{next: next, toolID: o.ToolID, most: *o.Max, seen: make(map[string]struct{})}
	}, nil
}

type limitedCalls struct {
	next   harness.ToolCaller
	toolID string
	most   int

	mu sync.Mutex
	// seen are the ids of the calls that were let through: at most as many as most.
	seen map[string]struct{}
}

func (l *limitedCalls) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	if !l.take(c) {
		return harness.ToolResult{}, fault.New(fault.ToolDenied, "middleware.tool_call_limit", fault.Detail("tool_call_limit: no further call in this run"))
	}
	return l.next.Call(ctx, c)
}

func (l *limitedCalls) take(c harness.ToolCall) bool {
	if l.toolID != "" && l.toolID != c.ToolID {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, again := l.seen[c.CallID]; again {
		return true
	}
	if len(l.seen) >= l.most {
		return false
	}
	l.seen[c.CallID] = struct{}{}
	return true
}

// resultLimit makes a larger result a string that begins like it.
func resultLimit(raw json.RawMessage) (step, error) {
	var o struct {
		MaxBytes int `json:"max_bytes"`
	}
	if err := options(raw, &o); err != nil {
		return nil, err
	}
	if o.MaxBytes < minResultBytes || o.MaxBytes > maxResultBytes {
		return nil, fmt.Errorf("max_bytes: %d to %d", minResultBytes, maxResultBytes)
	}
	return func(next harness.ToolCaller) harness.ToolCaller {
		return onResult(next, func(result json.RawMessage) json.RawMessage {
			if len(result) <= o.MaxBytes {
				return result
			}
			kept, _ := event.ProjectJSON(result, o.MaxBytes)
			return json.RawMessage(kept)
		})
	}, nil
}

// deny refuses every call of the named tools.
func deny(raw json.RawMessage) (step, error) {
	var o struct {
		ToolIDs []string `json:"tool_ids"`
	}
	if err := options(raw, &o); err != nil {
		return nil, err
	}
	if n := len(o.ToolIDs); n == 0 || n > maxToolIDs || slices.ContainsFunc(o.ToolIDs, func(id string) bool { return !isToolID(id) }) {
		return nil, fmt.Errorf("tool_ids: 1 to %d tool ids", maxToolIDs)
	}
	return func(next harness.ToolCaller) harness.ToolCaller {
		return caller(func(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
			if slices.Contains(o.ToolIDs, c.ToolID) {
				return harness.ToolResult{}, fault.New(fault.ToolDenied, "middleware.tool_deny", fault.Detail("tool_deny: this agent may not call the tool"))
			}
			return next.Call(ctx, c)
		})
	}, nil
}

// caller is a function as a harness.ToolCaller.
type caller func(context.Context, harness.ToolCall) (harness.ToolResult, error)

func (f caller) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	return f(ctx, c)
}

// onResult changes what a tool answered.
func onResult(next harness.ToolCaller, change func(json.RawMessage) json.RawMessage) harness.ToolCaller {
	return caller(func(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
		r, err := next.Call(ctx, c)
		if err == nil && len(r.Result) > 0 {
			r.Result = change(r.Result)
		}
		return r, err
	})
}

// isToolID is namespace.name, in the characters of the contract.
func isToolID(id string) bool {
	if len(id) > maxToolID {
		return false
	}
	dot := false
	for i, r := range id {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
		case r == '.' && i > 0:
			dot = true
		case r == '/' && dot:
		default:
			return false
		}
	}
	return dot
}
