package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
)

func codec() harness.Codec { return harness.Codec{Name: "cofferdam.scripted", Version: 1} }

// What is remembered: so many sayings, of so many bytes each.
const (
	maxSayings    = 32
	maxRemembered = 1 << 10
	maxState      = blob.MaxBytes
)

// state is the thread state.
type state struct {
	Sayings []saying `json:"sayings"`
	// Kept is what a script keeps under a key, such as ballast.
	Kept map[string]string `json:"kept,omitempty"`
	// Rest is the script that is played when a question is answered.
	Rest []json.RawMessage `json:"rest,omitempty"`
}

// saying is a turn, as far as it is remembered.
type saying struct {
	User string `json:"user,omitempty"`
	Text string `json:"text,omitempty"`
}

func (s *state) add(x saying) {
	x.User = event.Truncate(event.SanitizeText(x.User), maxRemembered)
	s.Sayings = append(s.Sayings, x)
	if len(s.Sayings) > maxSayings {
		s.Sayings = s.Sayings[len(s.Sayings)-maxSayings:]
	}
}

func decodeState(payload []byte) (state, error) {
	var s state
	o := strictjson.Options{MaxBytes: maxState, MaxDepth: maxDepth + 2, RequireFields: true}
	if err := strictjson.Unmarshal(payload, &s, o); err != nil {
		return state{}, fault.Wrap(fmt.Errorf("thread state: %w", err), fault.PersistenceFailed, "scripted.state")
	}
	return s, nil
}

// takeRest takes the rest of the script out of the state.
func (s *state) takeRest(hostile bool) (script, error) {
	text, err := json.Marshal(s.Rest)
	if len(s.Rest) == 0 {
		text = []byte(`[]`)
	}
	s.Rest = nil
	if err != nil {
		return script{}, fault.Wrap(err, fault.PersistenceFailed, "scripted.state")
	}
	rest, err := parse(text, hostile)
	if err != nil {
		return script{}, fault.Wrap(err, fault.PersistenceFailed, "scripted.state")
	}
	return rest, nil
}

func (n *run) load(ctx context.Context) error {
	head, err := n.Thread.Load(ctx, codec())
	if err != nil {
		return err
	}
	n.revision = head.Revision
	if head.Revision > 0 {
		n.state, err = decodeState(head.Payload)
	}
	return err
}

// encode gives the state, with what was said in this run.
func (n *run) encode(rest []json.RawMessage) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.state
	if len(s.Sayings) == 0 {
		s.Sayings = []saying{{}}
	}
	s.Sayings[len(s.Sayings)-1].Text = event.Truncate(event.SanitizeText(n.said.String()), maxRemembered)
	s.Rest = rest
	text, err := json.Marshal(s)
	switch most := n.construction.Limits.StateBytes; {
	case err != nil:
		return nil, fault.Wrap(err, fault.Internal, "scripted.state")
	case most > 0 && len(text) > most:
		return nil, fault.New(fault.StateTooLarge, "scripted.state")
	}
	return text, nil
}

func (n *run) commit(ctx context.Context) error {
	payload, err := n.encode(nil)
	if err != nil {
		return err
	}
	return n.Thread.Commit(ctx, codec(), n.revision, payload)
}

// recall is what is remembered of the turns before this one.
func (n *run) recall() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	for _, s := range n.state.Sayings[:max(len(n.state.Sayings)-1, 0)] {
		fmt.Fprintf(&b, "; you said “%s”, and I “%s”", s.User, s.Text)
	}
	if b.Len() == 0 {
		return "I remember nothing from before this message."
	}
	return "I remember from this conversation" + b.String() + "."
}
