package project

import (
	"bytes"
	"encoding/json"
	"fmt"

	"cofferdam.dev/pkg/event"
)

// MaxBytes bounds a projected result, in bytes of JSON.
const MaxBytes = event.MaxResultBytes

const (
	// maxItems bounds how many contents of a result are looked at.
	maxItems = 256
	// envelopeBytes is kept for what stands around contents.
	envelopeBytes = 128
	// leastItem is the space below which no content is begun.
	leastItem = 64
)

// Result is what a tool answered, as it may be shown.
type Result struct {
	// JSON is one object: content, and structuredContent, isError and truncated
	// where they apply.
	JSON json.RawMessage
	// IsError says that the tool failed.
	IsError bool
	// Truncated says that something was left out for its size.
	Truncated bool
	// Whole is the result that was cut, with nothing left out for its size: one
	// JSON object, without the credential and without characters that may not
	// stand in an event. It is nil where nothing was cut, and where the whole is
	// over MaxWholeBytes.
	Whole []byte
}

// NoInput is what a tool gets that asks for what nobody can be asked for.
const NoInput = "The tool asks for input from the user, which it cannot be given here."

// Answer projects the result of a tools/call as it came over the wire. It never
// fails: a result in no form of the protocol is an error of the tool.
func Answer(raw []byte, r Redactor) Result { return AnswerWithin(raw, r, MaxBytes) }

// AnswerWithin is Answer with a bound of its own, of at most MaxBytes, and with
// notes of the broker's that stand before what the tool said.
func AnswerWithin(raw []byte, r Redactor, most int, notes ...string) Result {
	// Exact keys: encoding/json would take "ISERROR" for isError.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return Failure("The tool's server gave a result in no form of the protocol.", r)
	}
	b := builder{redact: r, room: min(most, MaxBytes) - envelopeBytes}
	b.isError = string(fields["isError"]) == "true"
	if string(fields["resultType"]) == `"input_required"` || len(fields["inputRequests"]) > 0 {
		return Failure(NoInput, r)
	}
	for _, n := range notes {
		b.add(item{Type: "text"}, &n)
	}
	b.contents(fields["content"])
	b.structured(fields["structuredContent"])
	out := b.result()
	if out.Truncated {
		out.Whole = whole(fields, r, MaxWholeBytes)
	}
	return out
}

// RPCError projects a JSON-RPC error that a server answered: the tool did not do
// what was asked, and the model may see why.
func RPCError(code int64, message string, r Redactor) Result {
	return Failure(fmt.Sprintf("The tool's server answered with an error (%d): %s", code, message), r)
}

// Failure is a result that says that the tool failed.
func Failure(text string, r Redactor) Result {
	b := builder{redact: r, room: MaxBytes - envelopeBytes, isError: true}
	b.add(item{Type: "text"}, &text)
	return b.result()
}

// builder puts a result together within its bound.
type builder struct {
	redact    Redactor
	room      int // bytes that may still be used
	items     []json.RawMessage
	structure json.RawMessage
	isError   bool
	truncated bool
}

func (b *builder) result() Result {
	out := struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent,omitempty"`
		IsError    bool              `json:"isError,omitempty"`
		Truncated  bool              `json:"truncated,omitempty"`
	}{b.items, b.structure, b.isError, b.truncated}
	if out.Content == nil {
		out.Content = []json.RawMessage{}
	}
	return Result{JSON: encode(out), IsError: b.isError, Truncated: b.truncated}
}

// add adds a content, with a text that is cut to what there is room for.
func (b *builder) add(it item, text *string) {
	if b.truncated {
		return // nothing comes after what was cut
	}
	bare := len(encode(it)) + len(`,"text":,`)
	if bare+leastItem > b.room {
		b.truncated = true
		return
	}
	if text != nil {
		value, cut := event.ProjectText(b.redact.Cut(*text), b.room-bare)
		it.Text, b.truncated = json.RawMessage(value), cut
	}
	encoded := encode(it)
	b.room -= len(encoded) + 1
	b.items = append(b.items, encoded)
}

// encode cannot fail for what this package encodes; if it does, the result is
// empty rather than wrong.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage(`{}`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
