package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"cofferdam.dev/pkg/fault"
)

// relayStream passes the events of a stream on, each when it has come and only
// after it was looked at. It returns nil after the terminal of the wire, in
// front of which every choice has to have its finish_reason. An answer begins
// with its first event, so what fails before that is still told with a status.
func relayStream(out *response, in *answer, l Limits) error {
	frames := newFrameReader(in, l.MaxFrame)
	var seen choices
	for {
		f, err := frames.next()
		if err != nil {
			return streamFailure(err)
		}
		if f.comment {
			if err := out.keepAlive(); err != nil {
				return err
			}
			continue
		}
		if in.key.in(f.data) {
			return failed(errEcho)
		}
		if out.bytes+int64(len(f.data)) > l.MaxStream {
			return failed(errTooLarge)
		}
		last, err := seen.take(f.data)
		if err != nil {
			return err
		}
		if err := out.event(f.data); err != nil {
			return err
		}
		if last {
			in.settle()
			return nil
		}
	}
}

func streamFailure(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if reason, ok := errors.AsType[reasonError](err); ok {
		return failed(reason)
	}
	return failed(errCut) // the end of the stream, without its terminal
}

// maxChoices is how many answers to one request the wire allows.
const maxChoices = 128

// choices follows which answers of a stream have begun and which are finished.
type choices struct{ finished map[int]bool }

// take looks at one event; last says that it is the terminal.
func (c *choices) take(data []byte) (last bool, err error) {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		if len(c.finished) == 0 {
			return false, failed(errNoFinish)
		}
		for _, done := range c.finished {
			if !done {
				return false, failed(errNoFinish)
			}
		}
		return true, nil
	}
	view, err := look(data)
	if err != nil {
		return false, err
	}
	for _, ch := range view.Choices {
		if ch.Index < 0 || ch.Index >= maxChoices {
			return false, failed(errMalformed)
		}
		if c.finished == nil {
			c.finished = make(map[int]bool)
		}
		c.finished[ch.Index] = c.finished[ch.Index] || ch.finished()
	}
	return false, nil
}

// view is what has to be known of an answer or of an event of one.
type view struct {
	Error   json.RawMessage `json:"error"`
	Choices []choice        `json:"choices"`
}

type choice struct {
	Index        int    `json:"index"`
	FinishReason string `json:"finish_reason"`
}

func (c choice) finished() bool { return c.FinishReason != "" }

// look refuses what is no JSON object and what carries an error: its text is
// the provider's.
func look(data []byte) (view, error) {
	var v view
	if err := json.Unmarshal(data, &v); err != nil || !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return view{}, failed(errMalformed)
	}
	if len(v.Error) > 0 && string(v.Error) != "null" {
		return view{}, failed(errInAnswer)
	}
	return v, nil
}

// relayWhole passes on an answer that is not streamed. It is read to its end
// first: what is cut never begins.
func relayWhole(out *response, in *answer, l Limits) error {
	data, err := io.ReadAll(io.LimitReader(in, l.MaxAnswer+1))
	if err != nil {
		return streamFailure(err)
	}
	if int64(len(data)) > l.MaxAnswer {
		return failed(errTooLarge)
	}
	if in.key.in(data) {
		return failed(errEcho)
	}
	v, err := look(data)
	if err != nil {
		return err
	}
	if len(v.Choices) == 0 {
		return failed(errMalformed)
	}
	for _, c := range v.Choices {
		if !c.finished() {
			return failed(errNoFinish)
		}
	}
	return out.whole(data)
}
