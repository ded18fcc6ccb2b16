package stdio

import (
	"encoding/json"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
)

// The messages of the line protocol: what a program writes.

// message is one of the message structs.
type message interface{ isMessage() }

// readyMessage is the first message.
type readyMessage struct {
	Type     string `json:"type"`
	Protocol int    `json:"protocol"`
}

// eventMessage has a draft in its JSON form.
type eventMessage struct {
	Type  string          `json:"type"`
	Event json.RawMessage `json:"event"`

	draft event.Draft
}

// toolCallMessage asks for a call of a brokered tool. Arguments are left out for
// a call that was decided on.
type toolCallMessage struct {
	Type            string       `json:"type"`
	ToolCallID      string       `json:"tool_call_id"`
	ToolID          string       `json:"tool_id"`
	Arguments       event.Object `json:"arguments,omitempty"`
	ParentMessageID string       `json:"parent_message_id,omitempty"`
	Namespace       []string     `json:"namespace,omitempty"`
}

type memoryGetMessage struct {
	Type  string `json:"type"`
	ID    string `json:"id"`
	Scope string `json:"scope"`
	Key   string `json:"key"`
}

type memoryPutMessage struct {
	Type             string `json:"type"`
	ID               string `json:"id"`
	Scope            string `json:"scope"`
	Key              string `json:"key"`
	Kind             string `json:"kind"`
	ContentType      string `json:"content_type"`
	Content          string `json:"content"`
	ExpectedRevision uint64 `json:"expected_revision"`
}

type uploadMessage struct {
	Type     string `json:"type"`
	ID       string `json:"id"`
	Name     string `json:"name"`
	MIMEType string `json:"mime_type"`
	Data     []byte `json:"data"`
}

// stateMessage is a piece of a state that does not fit one line.
type stateMessage struct {
	Type string `json:"type"`
	Data []byte `json:"data"`
}

// commitMessage ends the turn as success.
type commitMessage struct {
	Type       string `json:"type"`
	State      []byte `json:"state,omitempty"`
	StopReason string `json:"stop_reason"`
}

// interruptMessage ends the turn with a question to a person: a form, or the
// calls to decide on.
type interruptMessage struct {
	Type      string     `json:"type"`
	State     []byte     `json:"state,omitempty"`
	Form      *form      `json:"form,omitempty"`
	Approvals []approval `json:"approvals,omitempty"`
}

type form struct {
	Prompt string            `json:"prompt"`
	Fields []event.FormField `json:"fields"`
}

type approval struct {
	ToolCallID string       `json:"tool_call_id"`
	ToolID     string       `json:"tool_id"`
	Arguments  event.Object `json:"arguments"`
	// AllowedDecisions are all three where they are left out.
	AllowedDecisions []event.Decision `json:"allowed_decisions,omitempty"`
}

// errorMessage ends the turn as an error.
type errorMessage struct {
	Type              string     `json:"type"`
	Code              fault.Code `json:"code"`
	RetryAfterSeconds uint32     `json:"retry_after_seconds,omitempty"`
}

// logMessage is for whoever debugs the program.
type logMessage struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (*readyMessage) isMessage()     {}
func (*eventMessage) isMessage()     {}
func (*toolCallMessage) isMessage()  {}
func (*memoryGetMessage) isMessage() {}
func (*memoryPutMessage) isMessage() {}
func (*uploadMessage) isMessage()    {}
func (*stateMessage) isMessage()     {}
func (*commitMessage) isMessage()    {}
func (*interruptMessage) isMessage() {}
func (*errorMessage) isMessage()     {}
func (*logMessage) isMessage()       {}

// maxLine bounds a message, in bytes without its line feed.
const maxLine = 1 << 20

// maxDepth is that of the deepest place for arguments: an approval in a list in
// a message; and of a draft in a message.
const maxDepth = event.MaxArgumentsDepth + 5

var errUnknownMessage = errors.New("message of an unknown type")

// decode takes one line. A delta of nothing is nil. Every error is one of the
// program, and its text may have keys of the program in it.
func decode(text []byte) (message, error) {
	opts := strictjson.Options{
		MaxBytes: maxLine, MaxDepth: maxDepth, RequireFields: true,
		AllowCaseVariants: true, // what is decided on is checked where it is an event
	}
	if err := strictjson.Check(text, opts); err != nil {
		return nil, err
	}
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, errUnknownMessage
	}
	m := messageOf(head.Type)
	if m == nil {
		return nil, errUnknownMessage
	}
	if err := strictjson.Unmarshal(text, m, opts); err != nil {
		return nil, err
	}
	e, ok := m.(*eventMessage)
	if !ok {
		return m, nil
	}
	var err error
	if e.draft, err = event.DecodeDraft(e.Event, event.Bounds{}); errors.Is(err, event.ErrEmptyDelta) {
		return nil, nil //nolint:nilnil // nothing to do is an answer here
	}
	return m, err
}

func messageOf(kind string) message {
	switch kind {
	case "ready":
		return &readyMessage{}
	case "event":
		return &eventMessage{}
	case "tool_call":
		return &toolCallMessage{}
	case "memory_get":
		return &memoryGetMessage{}
	case "memory_put":
		return &memoryPutMessage{}
	case "upload":
		return &uploadMessage{}
	case "state":
		return &stateMessage{}
	case "commit":
		return &commitMessage{}
	case "interrupt":
		return &interruptMessage{}
	case "error":
		return &errorMessage{}
	case "log":
		return &logMessage{}
	default:
		return nil
	}
}
