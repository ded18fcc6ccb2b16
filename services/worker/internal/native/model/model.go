// Package model is a conversation with a model, free of any provider's shape,
// and what a provider's wire has to do for it. The agent loop knows this package
// and no wire; a wire knows this package and no loop.
package model

import (
	"context"
	"encoding/json"
)

// Role says who speaks.
type Role string

// The roles of a conversation. What tools answered is a message of its own,
// which follows the answer that called them.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Kind is a kind of part.
type Kind string

// The kinds of parts: text and files of a user; reasoning, text and calls of an
// assistant; results of tools.
const (
	Text      Kind = "text"
	Reasoning Kind = "reasoning"
	Call      Kind = "call"
	Result    Kind = "result"
	Image     Kind = "image"
	Document  Kind = "document"
)

// Message is one message. Its parts stand in the order in which they came.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// Part is a part of a message. It is the thread state's form too.
type Part struct {
	Kind Kind `json:"kind"`
	// Text of a text, a reasoning or a result.
	Text string `json:"text,omitempty"`
	// Seal of a reasoning that its provider wants back.
	Seal *Seal `json:"seal,omitempty"`
	// CallID of a call and of its result: unique in the conversation.
	CallID string `json:"call_id,omitempty"`
	// Name that a call called, in letters that providers take back; the name of a
	// file, for display.
	Name string `json:"name,omitempty"`
	// Arguments of a call: one JSON object.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// Failed marks the result of a call that gave none.
	Failed bool `json:"failed,omitempty"`
	// MIMEType and Data of an image or a document.
	MIMEType string `json:"mime_type,omitempty"`
	Data     []byte `json:"data,omitempty"`
}

// Seal is what a provider gave with its reasoning so that it is known again. It
// means something on its own wire only, and nothing to anybody else.
type Seal struct {
	Wire string `json:"wire"`
	ID   string `json:"id,omitempty"`
	// Opaque is a signature, or the reasoning itself where it is not shown.
	Opaque string `json:"opaque"`
	// Hidden says that Opaque is the reasoning itself.
	Hidden bool `json:"hidden,omitempty"`
}

// Offer is a tool as the model sees it.
type Offer struct {
	// Name is 1 to 64 characters of [A-Za-z0-9_-].
	Name        string
	Description string
	// Schema is one JSON object. It travels as it came: numbers keep their digits.
	Schema json.RawMessage
}

// Effort is how much a model reasons; "" leaves it to the model.
type Effort string

// Request is what a model is asked.
type Request struct {
	Model    string
	System   string
	Messages []Message
	Offers   []Offer
	// MaxOutputTokens of the answer; 0 leaves it to the model.
	MaxOutputTokens int
	// Temperature is nil where it is left to the model.
	Temperature *float64
	Effort      Effort
}

// Fragment is a piece of a call. Pieces of one call have one index.
type Fragment struct {
	Index               int64
	ID, Name, Arguments string
}

// Sink takes an answer while it is streamed. What it is given is raw: it may be
// anything that a model can say. An error of the sink ends the stream.
type Sink interface {
	Text(ctx context.Context, delta string) error
	Reasoning(ctx context.Context, delta string) error
	// Seal ends the reasoning so far.
	Seal(s Seal) error
	Call(f Fragment) error
}

// The stop reasons that all wires share; any other one is the provider's own.
const (
	StopEnd    = "stop"
	StopLength = "length"
	StopCalls  = "tool_calls"
	StopFilter = "content_filter"
)

// End is what is known once an answer is whole.
type End struct {
	StopReason string
	Usage      Usage
}

// Model streams answers.
type Model interface {
	// Stream gives one answer to the sink, and returns once it is whole. A stream
	// that ends without its terminal is an error. Errors: what the sink says, and
	// those of this package, which carry a *fault.Error with nothing of the
	// provider's text: model_failed, model_unavailable, rate_limited, what the
	// proxy or the transport says, cancelled and deadline_exceeded.
	Stream(ctx context.Context, r Request, s Sink) (End, error)
}
