package stdio

import (
	"bytes"
	"encoding/json"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// The requests of the line protocol: what a program reads. A field that is
// absent has nothing to say.

// initialize is the first request.
type initialize struct {
	Type         string          `json:"type"` // initialize
	Protocol     int             `json:"protocol"`
	Agent        agent           `json:"agent"`
	Options      json.RawMessage `json:"options"`
	Prompt       string          `json:"prompt"`
	UserContext  json.RawMessage `json:"user_context,omitempty"`
	Model        model           `json:"model"`
	Tools        []tool          `json:"tools"`
	Interrupts   interrupts      `json:"interrupts"`
	MemoryScopes []string        `json:"memory_scopes"`
	Manifest     []file          `json:"manifest"`
	Limits       limits          `json:"limits"`
}

type agent struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type model struct {
	Alias           string `json:"alias"`
	Wire            string `json:"wire"`
	BaseURL         string `json:"base_url,omitempty"`
	RootURL         string `json:"root_url,omitempty"`
	Key             string `json:"key,omitempty"`
	MaxOutputTokens int    `json:"max_output_tokens,omitempty"`
	ContextTokens   int    `json:"context_tokens,omitempty"`
	Images          bool   `json:"images"`
	Documents       bool   `json:"documents"`
}

type tool struct {
	ID string `json:"id"`
	// Name is what a model is to be offered.
	Name             string          `json:"name"`
	Description      string          `json:"description"`
	InputSchema      json.RawMessage `json:"input_schema"`
	ApprovalRequired bool            `json:"approval_required"`
	ReadOnly         bool            `json:"read_only"`
}

type interrupts struct {
	FormInput    bool `json:"form_input"`
	ToolApproval bool `json:"tool_approval"`
}

type limits struct {
	ModelCalls int `json:"model_calls"`
	ToolCalls  int `json:"tool_calls"`
	StateBytes int `json:"state_bytes"`
}

// file stands in the world, under its path.
type file struct {
	Path     string `json:"path"`
	Name     string `json:"name,omitempty"`
	MIMEType string `json:"mime_type"`
	Size     uint64 `json:"size"`
}

// thread is what turn and resume say of the conversation.
type thread struct {
	RunID          string    `json:"run_id"`
	ConversationID string    `json:"conversation_id"`
	Deadline       time.Time `json:"deadline"`
	// State as the program committed it last; absent in a new conversation.
	State []byte `json:"state,omitempty"`
	// Uploads has the most bytes of each file that may be uploaded.
	Uploads []uint64 `json:"uploads"`
}

type turnRequest struct {
	Type string `json:"type"` // turn
	thread
	Message       string          `json:"message"`
	Files         []file          `json:"files"`
	ClientContext json.RawMessage `json:"client_context,omitempty"`
}

type resumeRequest struct {
	Type string `json:"type"` // resume
	thread
	Interrupt event.InterruptRequested `json:"interrupt"`
	Revision  uint64                   `json:"revision"`
	Decision  decision                 `json:"decision"`
}

// decision has exactly one of its fields.
type decision struct {
	Form      json.RawMessage `json:"form,omitempty"`
	Dismissed bool            `json:"dismissed,omitempty"`
	Tools     []toolDecision  `json:"tools,omitempty"`
}

type toolDecision struct {
	ToolCallID string          `json:"tool_call_id"`
	Decision   event.Decision  `json:"decision"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
}

type cancelRequest struct {
	Type string `json:"type"` // cancel
}

// toolResult answers a tool_call: with a result, or with an error.
type toolResult struct {
	Type       string          `json:"type"` // tool_result
	ToolCallID string          `json:"tool_call_id"`
	Result     json.RawMessage `json:"result,omitempty"`
	// IsError says that the tool itself failed.
	IsError bool    `json:"is_error"`
	Error   *failed `json:"error,omitempty"`
}

// answer answers memory_get, memory_put and upload.
type answer struct {
	Type     string  `json:"type"` // memory_result or upload_result
	ID       string  `json:"id"`
	Record   *record `json:"record,omitempty"`
	Revision uint64  `json:"revision,omitempty"`
	ObjectID string  `json:"object_id,omitempty"`
	Error    *failed `json:"error,omitempty"`
}

type record struct {
	Kind        string `json:"kind"`
	ContentType string `json:"content_type"`
	Content     string `json:"content"`
	Revision    uint64 `json:"revision"`
}

// failed is a safe error.
type failed struct {
	Code      fault.Code `json:"code"`
	Message   string     `json:"message"`
	Detail    string     `json:"detail,omitempty"`
	Retryable bool       `json:"retryable"`
}

func failure(f *fault.Error) *failed {
	return &failed{Code: f.Code(), Message: f.Code().Message(), Detail: event.SanitizeText(f.Detail()), Retryable: f.Code().Retryable()}
}

// line is a request as one line.
func line(request any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(request); err != nil {
		return nil, fault.Wrap(err, fault.Internal, "stdio.line")
	}
	return b.Bytes(), nil
}

func (r *runtime) initialize(a Access) initialize {
	c := r.construction
	out := initialize{
		Type: "initialize", Protocol: Protocol, Agent: agent{c.AgentID, c.AgentName}, Options: c.Options, Prompt: c.Prompt, UserContext: c.UserContext,
		Model: model{
			Alias: c.Model.Alias, Wire: string(c.Model.Wire), BaseURL: a.BaseURL, RootURL: a.RootURL, Key: a.Key,
			MaxOutputTokens: c.Model.MaxOutputTokens, ContextTokens: c.Model.ContextTokens, Images: c.Model.Images, Documents: c.Model.Documents,
		},
		Tools: []tool{}, Interrupts: interrupts(c.Interrupts), MemoryScopes: []string{}, Manifest: []file{}, Limits: limits(c.Limits),
	}
	for _, t := range c.Tools {
		out.Tools = append(out.Tools, tool{t.ID, t.OfferedName, t.Description, t.InputSchema, t.ApprovalRequired, t.ReadOnly})
	}
	for _, s := range c.MemoryScopes {
		out.MemoryScopes = append(out.MemoryScopes, string(s))
	}
	for _, m := range c.Manifest {
		out.Manifest = append(out.Manifest, file{Path: m.Path, MIMEType: m.MIMEType, Size: m.Size})
	}
	return out
}

func newThread(runID, conversationID string, deadline time.Time, state []byte, uploads []harness.Upload) thread {
	t := thread{RunID: runID, ConversationID: conversationID, Deadline: deadline.UTC(), State: state, Uploads: []uint64{}}
	for _, u := range uploads {
		t.Uploads = append(t.Uploads, u.MaxBytes)
	}
	return t
}
