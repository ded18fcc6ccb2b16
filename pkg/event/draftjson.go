package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"cofferdam.dev/pkg/strictjson"
)

// draftShape is the JSON form of a draft: an event without what only the owner
// of a stream can say. D is the payload, decoded or not.
type draftShape[D any] struct {
	Type      Type     `json:"type"`
	Namespace []string `json:"namespace,omitempty"`
	Data      D        `json:"data"`
}

// EncodeDraft gives the draft as one line of JSON without a line feed: type,
// namespace (left out for the root) and data. It bounds nothing.
func EncodeDraft(d Draft) ([]byte, error) {
	if !isPayload(d.Data) {
		return nil, errors.New("event: a draft without a payload cannot be encoded")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(draftShape[Data]{Type: d.Data.Type(), Namespace: d.Namespace, Data: d.Data}); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeDraft takes one draft from its JSON form and validates it, as strictly
// as Decode: what it gives can be stamped, and breaks no bound of a single event
// but, perhaps, the size that its envelope adds to. A field of the envelope is an
// unknown field. Errors: *ViolationError with rule 0, or ErrEmptyDelta.
func DecodeDraft(text []byte, b Bounds) (Draft, error) {
	b = b.effective()
	opts := strictjson.Options{
		MaxBytes: b.EventBytes,
		// Arguments stand as deep as in an event: the draft is their envelope.
		MaxDepth:          b.ArgumentsDepth + 4,
		AllowCaseVariants: true, // Validate refuses them where it matters.
		RequireFields:     true,
	}
	var shape draftShape[json.RawMessage]
	if err := strictjson.Unmarshal(text, &shape, opts); err != nil {
		return Draft{}, undecodable(0, err)
	}
	if !shape.Type.Known() {
		return Draft{}, &ViolationError{Field: "type", Reason: notOneOf}
	}
	data, err := decodePayload(shape.Type, shape.Data, opts)
	if err != nil {
		return Draft{}, undecodable(0, err)
	}
	if IsEmptyDelta(data) {
		return Draft{}, ErrEmptyDelta
	}
	d := Draft{Data: data}
	if len(shape.Namespace) > 0 {
		d.Namespace = shape.Namespace
	}
	// The envelope stands in for the one that the stream's owner will give.
	if err := inspectShape(d.Event("r", "c", 0, time.Unix(0, 0)), &b); err != nil {
		return Draft{}, err
	}
	return d, nil
}
