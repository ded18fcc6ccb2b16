package proxy

import (
	"bytes"
	"encoding/json"
	"regexp"
	"unicode/utf8"
)

// follower knows where an answer on its wire ends.
type follower interface {
	// event looks at one event of a stream.
	event(data []byte) (step, error)
	// mayEnd tells whether the stream is whole where it has no terminal event.
	mayEnd() bool
	// whole looks at an answer that is not streamed, and gives what goes on of it.
	whole(data []byte) ([]byte, error)
	// usage is what was reported so far.
	usage() usage
}

// step is what becomes of an event.
type step struct {
	name string // of the event, where the wire has names
	data []byte
	last bool // it is the terminal
	// failed tells that the terminal is one of a failure.
	failed bool
}

func (to route) follower() follower {
	switch {
	case to.count:
		return &countFollower{}
	case to.wire == OpenAIEmbeddings:
		return &embeddingsFollower{}
	case to.wire == OpenAIResponses:
		return &responsesFollower{}
	case to.wire == AnthropicMessages:
		return &messagesFollower{}
	case to.wire == Gemini:
		return &geminiFollower{finishes: finishes{most: maxChoices}}
	default:
		return &chatFollower{finishes: finishes{most: maxChoices}}
	}
}

// maxChoices is how many answers to one request a wire allows.
const maxChoices = 128

// eventName is what the type of an event has to look like: it is written into
// the line of its name.
var eventName = regexp.MustCompile(`^[a-z][a-z0-9_.]{0,63}$`)

// look decodes an event or an answer into v, which has an "error". It refuses
// what is no JSON object and what carries an error: its text is the provider's.
func look(data []byte, v interface{ failure() json.RawMessage }) error {
	if !utf8.Valid(data) || !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) || json.Unmarshal(data, v) != nil {
		return failed(errMalformed)
	}
	if raw := v.failure(); len(raw) > 0 && string(raw) != "null" {
		return failed(errInAnswer)
	}
	return nil
}

// mayFail is the part of every answer that tells a failure.
type mayFail struct {
	Error json.RawMessage `json:"error"`
}

func (m *mayFail) failure() json.RawMessage { return m.Error }

// finishes follows which answers of a stream have begun and which are finished.
type finishes struct {
	most     int
	finished map[int]bool
}

func (f *finishes) take(index int, finished bool) error {
	if index < 0 || index >= f.most {
		return failed(errMalformed)
	}
	if f.finished == nil {
		f.finished = make(map[int]bool)
	}
	f.finished[index] = f.finished[index] || finished
	return nil
}

// all reports whether there is an answer and none is unfinished.
func (f *finishes) all() bool {
	for _, done := range f.finished {
		if !done {
			return false
		}
	}
	return len(f.finished) > 0
}
