package agui

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/controlplane/internal/jsonline"
)

// Bounds of a RunAgentInput, in bytes.
const (
	// MaxInputBytes holds for all of it: clients send their whole history.
	MaxInputBytes = 16 << 20
	// MaxMessageBytes holds for the text of the new message.
	MaxMessageBytes = 256 << 10
	// MaxContextBytes holds for context, state and forwardedProps together.
	MaxContextBytes = 64 << 10
)

// Input is what a RunAgentInput asks for.
type Input struct {
	// ThreadID is the conversation, RunID the client's name of the run. Both are
	// ids of the contract.
	ThreadID, RunID string
	// Message is the text of the new message.
	Message string
	// Answers are those to the interrupts that ended the run before; then there is
	// no message.
	Answers []Answer
	// Skipped counts the parts of the new message that are not text.
	Skipped int
	// Context is one JSON object with what there is of context, state and
	// forwardedProps, for client_context; or empty.
	Context json.RawMessage
	// State and Messages are what the client has; see Echo.
	State    json.RawMessage
	Messages []Message
}

// Message is one that the client has.
type Message struct {
	// ID of the message.
	ID  string
	raw json.RawMessage
}

// document is the shape of a RunAgentInput.
type document struct {
	ThreadID        string            `json:"threadId"`
	RunID           string            `json:"runId"`
	ProtocolVersion string            `json:"protocolVersion,omitempty"`
	ParentRunID     string            `json:"parentRunId,omitempty"`
	State           json.RawMessage   `json:"state,omitempty"`
	Messages        []json.RawMessage `json:"messages"`
	Tools           []json.RawMessage `json:"tools,omitempty"`
	Context         []contextEntry    `json:"context,omitempty"`
	ForwardedProps  json.RawMessage   `json:"forwardedProps,omitempty"`
	Resume          []json.RawMessage `json:"resume,omitempty"`
}

type contextEntry struct {
	Description string `json:"description"`
	Value       string `json:"value"`
}

// ParseInput reads a RunAgentInput strictly: what AG-UI 1.0 does not know is
// refused. Of its messages only the last one counts, the user's new one, and none
// where it answers interrupts: the history is ours. Tools of the client are not
// implemented. Errors: invalid_request, request_too_large, protocol_unsupported,
// not_implemented, with the place in the detail.
func ParseInput(raw []byte) (Input, error) {
	var d document
	if err := decode(raw, &d, ""); err != nil {
		return Input{}, err
	}
	if err := d.check(); err != nil {
		return Input{}, err
	}
	in := Input{ThreadID: d.ThreadID, RunID: d.RunID}
	var err error
	if in.State, err = given(d.State); err != nil {
		return Input{}, err
	}
	if in.Context, err = d.context(in.State); err != nil {
		return Input{}, err
	}
	if in.Messages, err = messages(d.Messages); err != nil {
		return Input{}, err
	}
	if in.Answers, err = answers(d.Resume); err != nil || len(in.Answers) > 0 {
		return in, err
	}
	in.Message, in.Skipped, err = newMessage(d.Messages)
	return in, err
}

func (d document) check() error {
	major, _, _ := strings.Cut(d.ProtocolVersion, ".")
	switch {
	case !event.ValidID(d.ThreadID):
		return invalid("/threadId", "required, 1 to 128 characters of [A-Za-z0-9._:-]")
	case !event.ValidID(d.RunID):
		return invalid("/runId", "required, 1 to 128 characters of [A-Za-z0-9._:-]")
	case d.ProtocolVersion != "" && major != "1":
		return refused(fault.ProtocolUnsupported, "/protocolVersion", "this service speaks AG-UI "+ProtocolVersion)
	case len(d.Tools) > 0:
		return refused(fault.NotImplemented, "/tools", "an agent's tools are those of its configuration; send none")
	default:
		return nil
	}
}

// context gives client_context.
func (d document) context(state json.RawMessage) (json.RawMessage, error) {
	props, err := given(d.ForwardedProps)
	if err != nil || (len(d.Context) == 0 && state == nil && props == nil) {
		return nil, err
	}
	out, err := jsonline.Encode(struct {
		Context        []contextEntry  `json:"context,omitempty"`
		State          json.RawMessage `json:"state,omitempty"`
		ForwardedProps json.RawMessage `json:"forwardedProps,omitempty"`
	}{d.Context, state, props})
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "agui.context")
	}
	if len(out) > MaxContextBytes {
		return nil, refused(fault.RequestTooLarge, "", "context, state and forwardedProps have together at most 64 KiB")
	}
	return out, nil
}

// given is a value without its insignificant space; nil for null and for an empty
// object, which clients send when there is nothing.
func given(raw json.RawMessage) (json.RawMessage, error) {
	var b bytes.Buffer
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Compact(&b, raw); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "agui.given") // it was checked before
	}
	if s := b.String(); s == "null" || s == "{}" {
		return nil, nil
	}
	return b.Bytes(), nil
}

// messages takes the client's messages as they are: they are only ever sent back.
func messages(raw []json.RawMessage) ([]Message, error) {
	out := make([]Message, len(raw))
	for i, r := range raw {
		id, role := member(r, "id"), member(r, "role")
		if id == "" || role == "" {
			return nil, invalid("/messages/"+strconv.Itoa(i), "a message with id and role")
		}
		out[i] = Message{ID: id, raw: r}
	}
	return out, nil
}

// member is a string in an object; "" where there is none.
func member(raw json.RawMessage, name string) string {
	var (
		object map[string]json.RawMessage
		s      string
	)
	if json.Unmarshal(raw, &object) != nil || json.Unmarshal(object[name], &s) != nil {
		return ""
	}
	return s
}

// decode decodes what stands at a path of the input.
func decode(raw []byte, v any, at string) error {
	err := strictjson.Unmarshal(raw, v, strictjson.Options{MaxBytes: MaxInputBytes, RequireFields: true})
	var se *strictjson.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &se):
		return fault.Wrap(err, fault.Internal, "agui.decode")
	case se.Kind == strictjson.KindSize:
		return refused(fault.RequestTooLarge, at+se.Path, string(se.Kind))
	default:
		return invalid(at+se.Path, string(se.Kind))
	}
}

func invalid(at, reason string) error { return refused(fault.InvalidRequest, at, reason) }

// refused names a place of the input and a rule, never a value.
func refused(code fault.Code, at, reason string) error {
	where := "body: "
	if at != "" {
		where += at + ": "
	}
	return fault.New(code, "agui.ParseInput", fault.Detail(where+reason))
}
