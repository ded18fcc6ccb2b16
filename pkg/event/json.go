package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

// envelope is the published shape. D is the payload, decoded or not.
type envelope[D any] struct {
	Version        int      `json:"version"`
	Type           Type     `json:"type"`
	RunID          string   `json:"run_id"`
	ConversationID string   `json:"conversation_id"`
	Sequence       uint64   `json:"sequence"`
	Timestamp      instant  `json:"timestamp"`
	Namespace      []string `json:"namespace"`
	Data           D        `json:"data"`
}

// Encode gives the event as one line of JSON without a line feed, in the
// published shape. It bounds nothing: see Validate.
func Encode(e Event) ([]byte, error) {
	var b bytes.Buffer
	if err := encode(&b, e); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// MarshalJSON is Encode.
func (e Event) MarshalJSON() ([]byte, error) { return Encode(e) }

func encode(w interface{ Write([]byte) (int, error) }, e Event) error {
	if !isPayload(e.Data) {
		return errors.New("event: an event without a payload cannot be encoded")
	}
	namespace := e.Namespace
	if namespace == nil {
		namespace = []string{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(envelope[Data]{
		Version: Version, Type: e.Data.Type(), RunID: e.RunID, ConversationID: e.ConversationID,
		Sequence: e.Sequence, Timestamp: instant(e.Timestamp), Namespace: namespace, Data: e.Data,
	})
}

// encodedSize is the length of what Encode gives.
func encodedSize(e Event) (int, error) {
	var n counter
	err := encode(&n, e)
	return int(n) - 1, err
}

// counter counts what is written to it.
type counter int

func (n *counter) Write(p []byte) (int, error) {
	*n += counter(len(p))
	return len(p), nil
}

// instant is a time as RFC 3339 in UTC.
type instant time.Time

func (t instant) MarshalJSON() ([]byte, error) {
	return time.Time(t).UTC().MarshalJSON()
}

var errNotUTC = errors.New("event: the time is not in UTC")

// UnmarshalJSON takes a time of offset zero, written as Z or as +00:00.
func (t *instant) UnmarshalJSON(text []byte) error {
	var at time.Time
	if err := at.UnmarshalJSON(text); err != nil {
		return err
	}
	if !bytes.HasSuffix(text, []byte(`Z"`)) && !bytes.HasSuffix(text, []byte(`+00:00"`)) {
		return errNotUTC
	}
	*t = instant(at.UTC())
	return nil
}

func (t instant) time() time.Time { return time.Time(t) }
