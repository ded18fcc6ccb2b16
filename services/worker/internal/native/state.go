package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
)

// codec of the thread state: a JSON object with the messages.
func codec() harness.Codec { return harness.Codec{Name: "cofferdam.native", Version: 1} }

type role string

const (
	roleUser      role = "user"
	roleAssistant role = "assistant"
	roleTool      role = "tool"
)

// message is one message of the conversation, free of any provider's shape.
type message struct {
	Role role   `json:"role"`
	Text string `json:"text,omitempty"`
	// Calls of an assistant.
	Calls []call `json:"calls,omitempty"`
	// CallID that a tool's message answers.
	CallID string `json:"call_id,omitempty"`
}

type call struct {
	ID string `json:"id"`
	// Name is what the model called, in letters that providers take back.
	Name string `json:"name"`
	// Arguments are one JSON object: what a provider takes back.
	Arguments json.RawMessage `json:"arguments"`
}

// state is the thread state. The system prompt is not in it: it belongs to the
// agent's version.
type state struct {
	Messages []message `json:"messages"`
}

// maxState is more than a profile allows, in bytes.
const maxState = 4 << 20

// add appends messages. One that says nothing is left out: providers refuse it,
// and with it every later turn.
func (s *state) add(messages ...message) {
	for _, m := range messages {
		if m.Text != "" || len(m.Calls) > 0 || m.Role == roleTool {
			s.Messages = append(s.Messages, m)
		}
	}
}

func decodeState(h harness.Head) (state, error) {
	var s state
	if h.Revision == 0 {
		return s, nil
	}
	o := strictjson.Options{
		MaxBytes: maxState, MaxDepth: event.MaxArgumentsDepth + 6, RequireFields: true,
		AllowControls: true, // in what a person wrote
	}
	err := strictjson.Unmarshal(h.Payload, &s, o)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return state{}, fault.Wrap(fmt.Errorf("thread state: %w", err), fault.PersistenceFailed, "native.state")
	}
	return s, nil
}

// check finds what no turn of this adapter leaves behind.
func (s *state) check() error {
	for _, m := range s.Messages {
		switch m.Role {
		case roleUser, roleAssistant, roleTool:
		default:
			return errors.New("a message of an unknown role")
		}
		for _, c := range m.Calls {
			if _, ok := objectOf(string(c.Arguments)); !ok {
				return errors.New("arguments that are no object")
			}
		}
	}
	return nil
}

// encode gives the payload, within most bytes unless that is 0.
func (s *state) encode(most int) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "native.state")
	}
	raw := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if most > 0 && len(raw) > most {
		return nil, fault.New(fault.StateTooLarge, "native.state")
	}
	return raw, nil
}
