package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// callStep calls a tool through the broker.
type callStep struct {
	kind
	Tool string       `json:"tool"`
	Args event.Object `json:"args"`
	// ID of the call; one is made up where it is left out.
	ID string `json:"id,omitempty"`
	// Say the result.
	Say bool `json:"say,omitempty"`
}

func (s *callStep) play(ctx context.Context, a actor) error {
	id := s.ID
	if id == "" {
		id = a.id("call")
	}
	if err := a.draft(ctx, event.ToolStarted{ToolCallID: id, ToolName: s.Tool, Arguments: s.Args}); err != nil {
		return err
	}
	result, err := a.call(ctx, harness.ToolCall{CallID: id, ToolID: s.Tool, Arguments: json.RawMessage(s.Args)})
	if err != nil || !s.Say {
		return err
	}
	return a.say(ctx, s.Tool+" returned: "+result)
}

// call makes a call that has been started, and ends it. It gives what the tool
// said, or the code with which it failed.
func (a actor) call(ctx context.Context, c harness.ToolCall) (string, error) {
	res, err := a.Tools.Call(ctx, c)
	if err != nil {
		f := fault.From(err, "scripted.call")
		if ctx.Err() != nil || endsRun(f) {
			return "", f
		}
		return string(f.Code()), a.draft(ctx, event.ToolError{
			ToolCallID: c.CallID, Code: string(f.Code()), Message: f.Code().Message(), Retryable: f.Code().Retryable(),
		})
	}
	value, _ := event.ProjectJSON(res.Result, event.MaxResultBytes)
	return string(value), a.draft(ctx, event.ToolFinished{ToolCallID: c.CallID, Result: value, ResultRef: res.Ref})
}

// approveStep starts calls and asks a person about them. What comes after it is
// played when the person has decided.
type approveStep struct {
	kind
	Calls []struct {
		Tool string       `json:"tool"`
		Args event.Object `json:"args"`
	} `json:"calls"`
	Allowed []event.Decision `json:"allowed,omitempty"`
}

func (*approveStep) asks() {}

func (s *approveStep) play(ctx context.Context, a actor) error {
	asked := event.InterruptRequested{InterruptID: a.id("interrupt"), InterruptType: event.InterruptToolApproval, AgentID: a.construction.AgentID}
	allowed := s.Allowed
	if len(allowed) == 0 {
		allowed = []event.Decision{event.DecisionApprove, event.DecisionEdit, event.DecisionReject}
	}
	for _, c := range s.Calls {
		id := a.id("call")
		if err := a.draft(ctx, event.ToolStarted{ToolCallID: id, ToolName: c.Tool, Arguments: c.Args}); err != nil {
			return err
		}
		asked.ToolApprovals = append(asked.ToolApprovals, event.ToolApproval{ToolCallID: id, ToolName: c.Tool, ToolArgs: c.Args, AllowedDecisions: allowed})
	}
	return a.ask(ctx, asked)
}

// formStep asks a person for the input of a form.
type formStep struct {
	kind
	Prompt string            `json:"prompt"`
	Fields []event.FormField `json:"fields"`
}

func (*formStep) asks() {}

func (s *formStep) play(ctx context.Context, a actor) error {
	return a.ask(ctx, event.InterruptRequested{
		InterruptID: a.id("interrupt"), InterruptType: event.InterruptFormInput, AgentID: a.construction.AgentID, Prompt: s.Prompt, Fields: s.Fields,
	})
}

// ask ends the run with a question. Where the agent's policy does not let it ask,
// it fails.
func (a actor) ask(ctx context.Context, asked event.InterruptRequested) error {
	policy := a.construction.Interrupts
	if asked.InterruptType == event.InterruptFormInput && !policy.FormInput || asked.InterruptType == event.InterruptToolApproval && !policy.ToolApproval {
		return fault.New(fault.AccessDenied, "scripted.ask")
	}
	if err := a.draft(ctx, asked); err != nil {
		return err
	}
	payload, err := a.encode(a.rest.text)
	if err != nil {
		return err
	}
	if err := a.Thread.Interrupt(ctx, codec(), a.revision, payload); err != nil {
		return err
	}
	return errEnded
}

// carryOut ends the calls that were decided on.
func (n *run) carryOut(ctx context.Context, d harness.Decision) error {
	by := make(map[string]harness.ToolDecision, len(d.Tools))
	for _, t := range d.Tools {
		by[t.ToolCallID] = t
	}
	a := actor{run: n}
	for _, c := range d.Interrupt.ToolApprovals {
		call := harness.ToolCall{CallID: c.ToolCallID, ToolID: c.ToolName, Arguments: json.RawMessage(c.ToolArgs)}
		switch by[c.ToolCallID].Decision {
		case event.DecisionApprove:
		case event.DecisionEdit:
			call.Arguments = by[c.ToolCallID].Arguments
		default: // rejected or dismissed
			denied := event.ToolError{ToolCallID: c.ToolCallID, Code: string(fault.ToolDenied), Message: fault.ToolDenied.Message()}
			if err := a.draft(ctx, denied); err != nil {
				return err
			}
			continue
		}
		result, err := a.call(ctx, call)
		if err != nil {
			return err
		}
		n.note(c.ToolName + " returned: " + result)
	}
	return nil
}

// decisionStep says what was decided, and what the calls gave.
type decisionStep struct{ kind }

func (*decisionStep) play(ctx context.Context, a actor) error {
	d := a.decision
	switch {
	case d == nil:
		return a.say(ctx, "nothing was decided")
	case d.Dismissed:
		return a.say(ctx, "dismissed")
	case len(d.Form) > 0:
		return a.say(ctx, "the form says: "+string(d.Form))
	default:
		a.mu.Lock()
		noted := a.said.String()
		a.mu.Unlock()
		return a.say(ctx, fmt.Sprintf("decided on %d calls: %s", len(d.Tools), noted))
	}
}

// commitStep commits here; what comes after it is too much.
type commitStep struct {
	kind
	StopReason string `json:"stop_reason,omitempty"`
}

func (s *commitStep) play(ctx context.Context, a actor) error {
	if s.StopReason != "" {
		a.stopReason = s.StopReason
	}
	if err := a.commit(ctx); err != nil {
		return err
	}
	return errEnded
}

// endStep ends the harness without a commit.
type endStep struct{ kind }

func (*endStep) play(context.Context, actor) error { return errEnded }

// failStep ends the run with a code.
type failStep struct {
	kind
	Code fault.Code `json:"code"`
}

func (s *failStep) check() error {
	if !s.Code.Known() {
		return errors.New("code: one of the contract")
	}
	return nil
}

func (s *failStep) play(context.Context, actor) error { return fault.New(s.Code, "scripted.fail") }
