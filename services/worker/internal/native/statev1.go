package native

import (
	"encoding/json"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

// codecV1 is the format of the first version: texts and calls only.
func codecV1() harness.Codec { return harness.Codec{Name: "cofferdam.native", Version: 1} }

type stateV1 struct {
	Messages []messageV1 `json:"messages"`
}

type messageV1 struct {
	Role   model.Role `json:"role"`
	Text   string     `json:"text,omitempty"`
	Calls  []callV1   `json:"calls,omitempty"`
	CallID string     `json:"call_id,omitempty"`
}

type callV1 struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func decodeV1(h harness.Head) (*state, error) {
	s := &state{Conversation: begun()}
	if h.Revision == 0 {
		return s, nil
	}
	var old stateV1
	err := strictjson.Unmarshal(h.Payload, &old, strictjson.Options{
		MaxBytes: maxState, MaxDepth: event.MaxArgumentsDepth + 6, RequireFields: true, AllowControls: true,
	})
	if err != nil {
		return nil, damaged(err)
	}
	for _, m := range old.Messages {
		s.Conversation.takeV1(m)
	}
	if err := s.Conversation.check(maxDepth); err != nil {
		return nil, damaged(err)
	}
	if n := len(s.Conversation.Messages); n > 0 && len(s.Conversation.Messages[n-1].Calls()) > 0 {
		return nil, damaged(errors.New("calls without results"))
	}
	return s, nil
}

// takeV1 takes a message. The results of one answer were a message each.
func (c *conversation) takeV1(m messageV1) {
	if m.Role == model.Tool {
		result := model.Part{Kind: model.Result, CallID: m.CallID, Text: m.Text}
		if n := len(c.Messages); n > 0 && c.Messages[n-1].Role == model.Tool {
			c.Messages[n-1].Parts = append(c.Messages[n-1].Parts, result)
			return
		}
		c.add(model.Message{Role: model.Tool, Parts: []model.Part{result}})
		return
	}
	var parts []model.Part
	if m.Text != "" {
		parts = append(parts, model.Part{Kind: model.Text, Text: m.Text})
	}
	for _, k := range m.Calls {
		parts = append(parts, model.Part{Kind: model.Call, CallID: k.ID, Name: k.Name, Arguments: k.Arguments})
	}
	if len(parts) > 0 {
		c.Messages = append(c.Messages, model.Message{Role: m.Role, Parts: parts})
	}
}
