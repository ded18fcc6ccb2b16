package native

import (
	"context"
	"fmt"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/native/model"
)

// level is one agent at work in a run: the root, or a subagent in its namespace.
type level struct {
	*run

	agent *agent
	conv  *conversation
	// path of namespaces.
	path []string
	// parent is the open call that delegates.
	parent string
	// below are the subagents that wait for a person, by the call that delegates.
	below map[string]*level
	// question of a form that waits.
	question *event.InterruptRequested
	// seen is what the provider counted for the messages before seenUpTo.
	seen     uint64
	seenUpTo int
}

func (l *level) tell(ctx context.Context, d event.Data) error {
	return l.emit.Emit(ctx, event.Draft{Namespace: l.path, Data: d})
}

// loop asks the model and makes its calls until it calls nothing more, or until
// a person has to be asked.
func (l *level) loop(ctx context.Context) (stopReason string, waits bool, err error) {
	for {
		if n := l.modelCalls.Add(1); n > int64(l.construction.Limits.ModelCalls) {
			return stopModelCalls, false, l.warn(ctx, stopModelCalls, "The run has used up its model calls.")
		}
		// What cannot be kept is found out before anything more is done.
		if err := l.makeRoom(ctx); err != nil {
			return "", false, err
		}
		a, err := l.ask(ctx)
		if err != nil {
			return "", false, err
		}
		l.conv.add(model.Message{Role: model.Assistant, Parts: a.parts})
		if len(a.calls) == 0 {
			return a.stopReason, false, nil
		}
		l.open(a)
		if waits, err := l.work(ctx, a); waits || err != nil {
			return "", waits, err
		}
		l.conv.settle()
		if err := l.tellUsage(ctx, false); err != nil {
			return "", false, err
		}
	}
}

// open begins with the calls of an answer.
func (l *level) open(a answer) {
	for _, c := range a.calls {
		l.conv.Open = append(l.conv.Open, openCall{ID: c.CallID, Progress: callWaiting})
	}
}

// goOn is loop for a conversation that has open calls.
func (l *level) goOn(ctx context.Context) (stopReason string, waits bool, err error) {
	if len(l.conv.Open) > 0 {
		if waits, err := l.work(ctx, l.reopened()); waits || err != nil {
			return "", waits, err
		}
		l.conv.settle()
	}
	return l.loop(ctx)
}

// reopened is the answer whose calls are open, from the state alone.
func (l *level) reopened() answer {
	var a answer
	for _, p := range l.conv.Messages[len(l.conv.Messages)-1].Calls() {
		a.calls = append(a.calls, toolCall{Part: p})
	}
	return a
}

// final is what the agent said last.
func (l *level) final(stopReason string) string {
	text := ""
	if n := len(l.conv.Messages); n > 0 && l.conv.Messages[n-1].Role == model.Assistant {
		text = l.conv.Messages[n-1].Joined()
	}
	if stopReason != model.StopEnd {
		text += fmt.Sprintf("\n[The subagent stopped: %s]", event.SanitizeText(event.Truncate(stopReason, event.MaxIDLength)))
	}
	if text == "" {
		return "[The subagent said nothing]"
	}
	return text
}
