package threadstate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// maxClosing is how many events may stand between an interrupt and the end of its
// run: what was open is closed there.
const maxClosing = 256

var errNotAsked = errors.New("the log does not ask what is to be committed")

// asked sees that the log asks what a commit says that it asks: what is answered
// later must be what people saw, and a run must not wait for an answer to nothing.
func (s *Service) asked(ctx context.Context, e fence.Envelope, last uint64, i Interrupt) error {
	const op = "threadstate.asked"
	from := last - min(last, maxClosing-1)
	page, err := s.writer.Events(ctx, e.BindingID, e.RunID, from, maxClosing)
	if err != nil {
		return fault.From(err, op)
	}
	for n, raw := range page.Events {
		if page.First+uint64(n) > last {
			break
		}
		if asks(raw, i) {
			return nil
		}
	}
	return fault.Wrap(errNotAsked, fault.Protocol, op)
}

// asks reports whether an event of the log is the interrupt.
func asks(raw json.RawMessage, i Interrupt) bool {
	var e struct {
		Type event.Type      `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if json.Unmarshal(raw, &e) != nil || e.Type != event.TypeInterruptRequested {
		return false
	}
	question, err := event.DecodeInterrupt(e.Data, event.DefaultBounds())
	if err != nil || question.InterruptID != i.ID {
		return false
	}
	body, err := event.InterruptBody(question)
	return err == nil && sha256.Sum256(body) == i.SHA256
}
