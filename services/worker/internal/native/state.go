package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

// codec of the thread state: a JSON object with the conversation.
func codec() harness.Codec { return harness.Codec{Name: "cofferdam.native", Version: 2} }

// state is the thread state. The system prompt is not in it: it belongs to the
// agent's version.
type state struct {
	Conversation *conversation `json:"conversation"`
	// Interrupt is the id of the question that the open calls wait for; "" where
	// nobody was asked.
	Interrupt string `json:"interrupt,omitempty"`
}

// conversation of one agent with its model.
type conversation struct {
	Messages []model.Message `json:"messages"`
	// Open are the calls of the last message, in their order, until all have their
	// results.
	Open []openCall `json:"open,omitempty"`
}

// progress says how far an open call is.
type progress string

const (
	// callWaiting for its turn.
	callWaiting progress = "waiting"
	// callDone has its result.
	callDone progress = "done"
	// callAsked waits for a person's approval.
	callAsked progress = "asked"
	// callForm waits for a person's answer.
	callForm progress = "form"
	// callInput waits for the user's answer to its tool.
	callInput progress = "input"
	// callDelegated waits for what a subagent asked.
	callDelegated progress = "delegated"
)

// openCall is a call whose answer is not complete yet.
type openCall struct {
	ID       string   `json:"id"`
	Progress progress `json:"progress"`
	// Text of the result, and whether it is a failure.
	Text   string `json:"text,omitempty"`
	Failed bool   `json:"failed,omitempty"`
	// Question of its tool, of a call that waits for the answer alone.
	Question *toolQuestion `json:"question,omitempty"`
	// Conversation of the subagent.
	Conversation *conversation `json:"conversation,omitempty"`
}

// maxState is the most that a profile allows, in bytes.
const maxState = blob.MaxBytes

// begun is a conversation without messages.
func begun() *conversation { return &conversation{Messages: []model.Message{}} }

// add appends a message. One that says nothing is left out: providers refuse it,
// and with it every later turn. So is one that only reasons.
func (c *conversation) add(m model.Message) {
	says := func(p model.Part) bool { return p.Kind != model.Reasoning && (p.Kind != model.Text || p.Text != "") }
	if slices.ContainsFunc(m.Parts, says) {
		c.Messages = append(c.Messages, m)
	}
}

// settle turns the open calls into the message of their results.
func (c *conversation) settle() {
	m := model.Message{Role: model.Tool}
	for _, o := range c.Open {
		m.Parts = append(m.Parts, model.Part{Kind: model.Result, CallID: o.ID, Text: o.Text, Failed: o.Failed})
	}
	c.add(m)
	c.Open = nil
}

// load reads the thread's state. One of the version before is moved up: it is
// written as the new one at the end of the turn.
func load(ctx context.Context, t harness.ThreadState) (harness.Head, *state, error) {
	head, err := t.Load(ctx, codec())
	decode := decodeState
	if fault.Is(err, fault.WorkerMismatch) {
		decode = decodeV1
		head, err = t.Load(ctx, codecV1())
	}
	if err != nil {
		return head, nil, err
	}
	s, err := decode(head)
	return head, s, err
}

func decodeState(h harness.Head) (*state, error) {
	s := &state{Conversation: begun()}
	if h.Revision == 0 {
		return s, nil
	}
	err := strictjson.Unmarshal(h.Payload, s, strictjson.Options{
		MaxBytes: maxState, MaxDepth: event.MaxArgumentsDepth + 24, RequireFields: true,
		AllowControls: true, // in what a person wrote
	})
	if err == nil {
		err = s.Conversation.check(maxDepth)
	}
	if err != nil {
		return nil, damaged(err)
	}
	return s, nil
}

func damaged(err error) error {
	return fault.Wrap(fmt.Errorf("thread state: %w", err), fault.PersistenceFailed, "native.state")
}

// check finds what no turn of this adapter leaves behind.
func (c *conversation) check(deep int) error {
	if c == nil || deep < 0 {
		return errors.New("a conversation that is missing or too deep")
	}
	for _, m := range c.Messages {
		if !slices.Contains([]model.Role{model.User, model.Assistant, model.Tool}, m.Role) || len(m.Parts) == 0 {
			return errors.New("a message of an unknown role or without parts")
		}
		for _, p := range m.Parts {
			if err := checkPart(p); err != nil {
				return err
			}
		}
	}
	return c.checkOpen(deep)
}

func checkPart(p model.Part) error {
	switch p.Kind {
	case model.Text, model.Reasoning, model.Result, model.Image, model.Document:
		return nil
	case model.Call:
		if _, ok := objectOf(string(p.Arguments)); !ok || p.CallID == "" || p.Name == "" {
			return errors.New("a call without a name, or with arguments that are no object")
		}
		return nil
	}
	return errors.New("a part of an unknown kind")
}

// checkOpen holds the open calls against the message that made them.
func (c *conversation) checkOpen(deep int) error {
	if len(c.Open) == 0 {
		return nil
	}
	var calls []model.Part
	if n := len(c.Messages); n > 0 {
		calls = c.Messages[n-1].Calls()
	}
	if len(calls) != len(c.Open) {
		return errors.New("open calls that the last message did not make")
	}
	for i, o := range c.Open {
		switch {
		case o.ID != calls[i].CallID:
			return errors.New("an open call that the last message did not make")
		case o.Progress == callDelegated && o.Question == nil:
			if err := o.Conversation.check(deep - 1); err != nil {
				return err
			}
		case o.Progress == callInput && o.Conversation == nil:
			if _, err := o.Question.interrupt(); err != nil {
				return err
			}
		case o.Question != nil:
			return errors.New("an open call with a question that it does not wait for")
		case !slices.Contains([]progress{callWaiting, callDone, callAsked, callForm}, o.Progress) || o.Conversation != nil:
			return errors.New("an open call in an unknown condition")
		}
	}
	return nil
}

// encode gives the payload, within most bytes unless that is 0. Files are what
// goes first: the oldest are replaced by a note.
func (s *state) encode(most int) ([]byte, error) {
	raw, err := marshal(s)
	if err != nil || most <= 0 || len(raw) <= most {
		return raw, err
	}
	if raw, err = marshal(s.withoutFiles(len(raw) - most)); err != nil {
		return nil, err
	}
	if len(raw) > most {
		return nil, fault.New(fault.StateTooLarge, "native.state")
	}
	return raw, nil
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "native.state")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
