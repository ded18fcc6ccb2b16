package loopback

import (
	"bytes"
	"encoding/json"

	"cofferdam.dev/services/worker/internal/harness"
)

const (
	// maxEvent is how long an event of a stream may be to be looked at, in bytes.
	maxEvent = 2 << 20
	// maxWhole is the same for an answer that is not streamed.
	maxWhole = 8 << 20
)

// observer reads along with an answer: whether it was whole, whether there was an
// error in it, and what it has used. It never holds the answer back, and what it
// cannot read it leaves unknown.
type observer struct {
	wire   harness.Wire
	stream bool
	seen   reading
	// buf is the line, or the whole answer, so far; over says that it was too long.
	buf  []byte
	over bool
}

func newObserver(w harness.Wire, stream bool) *observer { return &observer{wire: w, stream: stream} }

// reading is what was read so far.
type reading struct {
	terminal, failed bool
	used             Usage
}

func (o *observer) write(p []byte) {
	if o.wire == "" {
		return
	}
	if !o.stream {
		o.keep(p, maxWhole)
		return
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			o.keep(p, maxEvent)
			return
		}
		o.keep(p[:i], maxEvent)
		o.line()
		p = p[i+1:]
	}
}

func (o *observer) keep(p []byte, most int) {
	if o.over || len(o.buf)+len(p) > most {
		o.over, o.buf = true, o.buf[:0]
		return
	}
	o.buf = append(o.buf, p...)
}

// line takes one line of a stream. The wires write an event's data in one line.
func (o *observer) line() {
	line, over := o.buf, o.over
	o.buf, o.over = o.buf[:0], false
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if over || !ok {
		return
	}
	o.take(bytes.TrimSpace(data))
}

func (o *observer) take(data []byte) {
	if string(data) == "[DONE]" {
		o.seen.terminal = true
		return
	}
	switch o.wire {
	case harness.WireOpenAIChat:
		read(data, &o.seen, chatChunk.into)
	case harness.WireOpenAIResponses:
		read(data, &o.seen, responsesEvent.into)
	case harness.WireAnthropicMessages:
		read(data, &o.seen, anthropicEvent.into)
	case harness.WireGemini:
		read(data, &o.seen, geminiChunk.into)
	}
}

func read[T any](data []byte, r *reading, into func(T, *reading)) {
	var v T
	if json.Unmarshal(data, &v) == nil {
		into(v, r)
	}
}

// close tells whether an answer that came to its end was whole. One that is not
// streamed is, for the transport has counted its bytes.
func (o *observer) close() bool {
	switch {
	case o.wire == "":
		return true
	case o.stream:
		o.line()
		return o.seen.terminal
	default:
		o.take(o.buf)
		return true
	}
}

func (o *observer) failed() bool { return o.seen.failed }

func (o *observer) ended() bool { return o.seen.terminal }

func (o *observer) usage() Usage { return o.seen.used }
