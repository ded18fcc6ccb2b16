package native

import (
	"context"
	"errors"
	"slices"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/native/model"
)

const taskSchema = `{
  "type": "object",
  "properties": {"task": {"type": "string", "description": "What to do, with all that is needed to know: the subagent sees nothing of this conversation."}},
  "required": ["task"],
  "additionalProperties": false
}`

type taskArgs struct {
	Task string `json:"task"`
}

// delegateTo lets a subagent work on a task, in a namespace of its own and within
// the limits of the run. Its last words are the result.
func (l *level) delegateTo(ctx context.Context, o *openCall, c toolCall, sub *agent) error {
	const op = "native.delegate"
	var args taskArgs
	err := strictjson.Unmarshal(c.Arguments, &args, strictjson.Options{MaxBytes: event.MaxArgumentsBytes, RequireFields: true})
	if err != nil || args.Task == "" {
		return l.failed(ctx, o, fault.New(fault.ToolArgumentsInvalid, op, fault.Detail("arguments: an object with a task")))
	}
	conv := begun()
	conv.add(model.Message{Role: model.User, Parts: []model.Part{{Kind: model.Text, Text: args.Task}}})
	return l.enter(ctx, o, sub, conv)
}

// enter opens the namespace of a subagent, runs it, and closes the namespace
// unless a person has to be asked first: what waits in it has to stay open until
// then.
func (l *level) enter(ctx context.Context, o *openCall, sub *agent, conv *conversation) error {
	const op = "native.enter"
	if !l.room.enter() {
		if err := l.giveUp(ctx, conv); err != nil {
			return err
		}
		return l.failed(ctx, o, fault.New(fault.Capacity, op, fault.Detail("too many subagents at once: delegate less at a time")))
	}
	s := &level{run: l.run, agent: sub, conv: conv, path: append(slices.Clone(l.path), o.ID), parent: o.ID}
	if err := s.tell(ctx, event.NamespaceEntered{AgentID: sub.id, AgentName: sub.name, ParentToolCallID: o.ID}); err != nil {
		return err
	}
	reason, waits, err := s.goOn(ctx)
	switch {
	case err != nil && !tellable(ctx, err):
		return err
	case waits:
		o.Progress, o.Conversation = callDelegated, conv
		l.wait(o.ID, s)
		return nil
	}
	outcome := event.NamespaceSuccess
	if err != nil {
		outcome = event.NamespaceError
	}
	if xerr := s.exit(ctx, outcome); xerr != nil {
		return xerr
	}
	return l.ended(ctx, o, said(s.final(reason)), err)
}

func (l *level) exit(ctx context.Context, outcome event.NamespaceOutcome) error {
	err := l.tell(ctx, event.NamespaceExited{AgentID: l.agent.id, ParentToolCallID: l.parent, Outcome: outcome})
	l.room.leave()
	return err
}

// wait keeps a subagent whose namespace is to be closed as interrupted.
func (l *level) wait(id string, s *level) {
	l.room.mu.Lock()
	defer l.room.mu.Unlock()
	if l.below == nil {
		l.below = make(map[string]*level)
	}
	l.below[id] = s
}

// reenter goes on with a subagent whose question was answered. Its call counts
// as started where the run before left it open.
func (l *level) reenter(ctx context.Context, o *openCall, c toolCall, t *tool) error {
	if !l.decided.carried[o.ID] {
		if err := l.started(ctx, c, namespace+c.Name, ""); err != nil {
			return err
		}
	}
	if t == nil || t.kind != toolSubagent {
		if err := l.giveUp(ctx, o.Conversation); err != nil {
			return err
		}
		return l.failed(ctx, o, fault.New(fault.ToolNotAllowed, "native.reenter"))
	}
	return l.enter(ctx, o, t.sub, o.Conversation)
}

// giveUp ends what waits in a subagent that cannot go on.
func (l *level) giveUp(ctx context.Context, conv *conversation) error {
	for _, o := range conv.Open {
		switch {
		case o.Progress == callDelegated:
			if err := l.giveUp(ctx, o.Conversation); err != nil {
				return err
			}
			if !l.decided.carried[o.ID] {
				continue
			}
		case o.Progress != callAsked:
			continue
		}
		if err := l.failed(ctx, &o, fault.New(fault.ToolNotAllowed, "native.giveUp")); err != nil {
			return err
		}
	}
	return nil
}

// tellable says whether whoever delegated may be told of an error, and go on: the
// model of the subagent gave no answer, and nothing else is wrong.
func tellable(ctx context.Context, err error) bool {
	var f *model.FailureError
	return errors.As(err, &f) && !fatal(ctx, err)
}
