package event

import (
	"encoding/json"
	"errors"

	"cofferdam.dev/pkg/strictjson"
)

// Decode takes one event from its published shape and validates it. It refuses
// unknown and missing fields, duplicate keys, invalid text, integers that are
// none, and what breaks a bound; whitespace is let through and dropped. Errors:
// *ViolationError with rule 0, or ErrEmptyDelta.
func Decode(text []byte, b Bounds) (Event, error) {
	b = b.effective()
	opts := strictjson.Options{
		MaxBytes: b.EventBytes,
		// Arguments stand at most four levels deep: in an approval, in a list, in
		// a payload, in an envelope.
		MaxDepth:          b.ArgumentsDepth + 4,
		AllowCaseVariants: true, // Validate refuses them where it matters.
		RequireFields:     true,
	}
	var env envelope[json.RawMessage]
	if err := strictjson.Unmarshal(text, &env, opts); err != nil {
		return Event{}, undecodable(0, err)
	}
	e := Event{
		RunID: env.RunID, ConversationID: env.ConversationID, Sequence: env.Sequence, Timestamp: env.Timestamp.time(),
	}
	if len(env.Namespace) > 0 {
		e.Namespace = env.Namespace
	}
	switch {
	case env.Version != Version:
		return Event{}, &ViolationError{Sequence: e.Sequence, Field: "version", Reason: notOneOf}
	case !env.Type.Known():
		return Event{}, &ViolationError{Sequence: e.Sequence, Field: "type", Reason: notOneOf}
	}
	data, err := decodePayload(env.Type, env.Data, opts)
	if err != nil {
		return Event{}, undecodable(e.Sequence, err)
	}
	e.Data = data
	if IsEmptyDelta(data) {
		return Event{}, ErrEmptyDelta
	}
	if err := inspectShape(e, &b); err != nil {
		return Event{}, err
	}
	return e, nil
}

// UnmarshalJSON is Decode with the default bounds.
func (e *Event) UnmarshalJSON(text []byte) error {
	decoded, err := Decode(text, Bounds{})
	if err != nil {
		return err
	}
	*e = decoded
	return nil
}

func undecodable(sequence uint64, err error) *ViolationError {
	v := &ViolationError{Sequence: sequence, Reason: "cannot be decoded", cause: err}
	if cause, ok := errors.AsType[*strictjson.Error](err); ok {
		v.Reason = string(cause.Kind)
	}
	return v
}

// decodePayload decodes the payload of a known type.
func decodePayload(t Type, text []byte, o strictjson.Options) (Data, error) {
	switch t {
	case TypeRunStarted:
		return decodeAs[RunStarted](text, o)
	case TypeRunFinished:
		return decodeAs[RunFinished](text, o)
	case TypeRunInterrupted:
		return decodeAs[RunInterrupted](text, o)
	case TypeRunCancelled:
		return decodeAs[RunCancelled](text, o)
	case TypeRunError:
		return decodeAs[RunError](text, o)
	case TypeTextStarted:
		return decodeAs[TextStarted](text, o)
	case TypeTextDelta:
		return decodeAs[TextDelta](text, o)
	case TypeTextFinished:
		return decodeAs[TextFinished](text, o)
	case TypeReasoningStarted:
		return decodeAs[ReasoningStarted](text, o)
	case TypeReasoningDelta:
		return decodeAs[ReasoningDelta](text, o)
	case TypeReasoningFinished:
		return decodeAs[ReasoningFinished](text, o)
	case TypeToolStarted:
		return decodeAs[ToolStarted](text, o)
	case TypeToolArgumentsDelta:
		return decodeAs[ToolArgumentsDelta](text, o)
	case TypeToolFinished:
		return decodeAs[ToolFinished](text, o)
	case TypeToolError:
		return decodeAs[ToolError](text, o)
	case TypeInterruptRequested:
		return decodeAs[InterruptRequested](text, o)
	case TypeNamespaceEntered:
		return decodeAs[NamespaceEntered](text, o)
	case TypeNamespaceExited:
		return decodeAs[NamespaceExited](text, o)
	case TypeWarning:
		return decodeAs[Warning](text, o)
	case TypeUsageUpdated:
		return decodeAs[UsageUpdated](text, o)
	case TypeProviderMetadata:
		return decodeAs[ProviderMetadata](text, o)
	default:
		return nil, errors.New("event: unknown type")
	}
}

func decodeAs[P Data](text []byte, o strictjson.Options) (Data, error) {
	var p P
	if err := strictjson.Unmarshal(text, &p, o); err != nil {
		return nil, err
	}
	return p, nil
}
