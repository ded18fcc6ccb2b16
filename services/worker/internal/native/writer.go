package native

import (
	"context"
	"slices"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/native/model"
)

// answer is one answer of the model.
type answer struct {
	// parts as they are kept.
	parts      []model.Part
	messageID  string
	calls      []toolCall
	stopReason string
}

// writer turns what comes of one answer into events and parts. It implements
// model.Sink.
type writer struct {
	*level

	// messageID and reasoningID are empty while nothing of the kind is open.
	messageID, reasoningID string
	parts                  []*piece
	bytes                  int
	// began says that something of the answer has come: the call cannot be made
	// again without people seeing it twice.
	began bool
}

// piece is a part that is still coming.
type piece struct {
	kind model.Kind
	text strings.Builder
	seal *model.Seal
	call *partialCall
}

// Text implements model.Sink.
func (w *writer) Text(ctx context.Context, s string) error {
	if s = event.SanitizeText(s); s == "" {
		return nil
	}
	if err := w.grow(len(s)); err != nil {
		return err
	}
	if err := w.endReasoning(ctx); err != nil {
		return err
	}
	if w.messageID == "" {
		w.messageID = w.id("msg", w.texts.Add(1))
		if err := w.tell(ctx, event.TextStarted{MessageID: w.messageID}); err != nil {
			return err
		}
	}
	w.last(model.Text).text.WriteString(s)
	return eachPiece(s, func(p string) error { return w.tell(ctx, event.TextDelta{MessageID: w.messageID, Delta: p}) })
}

// Reasoning implements model.Sink.
func (w *writer) Reasoning(ctx context.Context, s string) error {
	if s = event.SanitizeText(s); s == "" {
		return nil
	}
	if err := w.grow(len(s)); err != nil {
		return err
	}
	if w.reasoningID == "" {
		w.reasoningID = w.id("rsn", w.reasonings.Add(1))
		if err := w.tell(ctx, event.ReasoningStarted{MessageID: w.reasoningID}); err != nil {
			return err
		}
	}
	w.last(model.Reasoning).text.WriteString(s)
	return eachPiece(s, func(p string) error { return w.tell(ctx, event.ReasoningDelta{MessageID: w.reasoningID, Delta: p}) })
}

// Seal implements model.Sink. A seal is a provider's own text and goes nowhere
// but into the state, and back.
func (w *writer) Seal(s model.Seal) error {
	if err := w.grow(len(s.Opaque)); err != nil {
		return err
	}
	p := w.last(model.Reasoning)
	if s.Hidden && p.text.Len() > 0 || p.seal != nil {
		p = w.next(model.Reasoning)
	}
	p.seal = &s
	return nil
}

// Call implements model.Sink. Pieces of one call have one index; a second id
// under it begins another call, for some providers give every call the index 0.
func (w *writer) Call(f model.Fragment) error {
	if err := w.grow(len(f.Name) + len(f.Arguments)); err != nil {
		return err
	}
	w.began = true
	c := w.callAt(f.Index)
	if c == nil || f.ID != "" && c.id != "" && f.ID != c.id {
		if w.count() == maxCallsInAnswer {
			return fault.New(fault.ModelFailed, "native.collect", fault.Detail("the model calls more tools at once than it may"))
		}
		c = &partialCall{index: f.Index}
		w.next(model.Call).call = c
	}
	if f.ID != "" {
		c.id = f.ID
	}
	c.name += f.Name
	c.args.WriteString(f.Arguments)
	return nil
}

// grow bounds what one answer may be.
func (w *writer) grow(bytes int) error {
	w.began = w.began || bytes > 0
	w.bytes += bytes
	if most := w.construction.Limits.StateBytes; most > 0 && w.bytes > most {
		return fault.New(fault.StateTooLarge, "native.answer")
	}
	return nil
}

// last is the piece of a kind that goes on, or a new one.
func (w *writer) last(k model.Kind) *piece {
	if n := len(w.parts); n > 0 && w.parts[n-1].kind == k && w.parts[n-1].seal == nil {
		return w.parts[n-1]
	}
	return w.next(k)
}

func (w *writer) next(k model.Kind) *piece {
	p := &piece{kind: k}
	w.parts = append(w.parts, p)
	return p
}

// callAt is the last call of an index, or nil.
func (w *writer) callAt(index int64) *partialCall {
	for _, p := range slices.Backward(w.parts) {
		if p.call != nil && p.call.index == index {
			return p.call
		}
	}
	return nil
}

func (w *writer) count() (n int) {
	for _, p := range w.parts {
		if p.call != nil {
			n++
		}
	}
	return n
}

// endReasoning closes a piece of reasoning: what comes after other text is
// another piece.
func (w *writer) endReasoning(ctx context.Context) error {
	if w.reasoningID == "" {
		return nil
	}
	id := w.reasoningID
	w.reasoningID = ""
	return w.tell(ctx, event.ReasoningFinished{MessageID: id})
}

// close closes what the answer opened, whether it is whole or not.
func (w *writer) close(ctx context.Context) error {
	if err := w.endReasoning(ctx); err != nil || w.messageID == "" {
		return err
	}
	return w.tell(ctx, event.TextFinished{MessageID: w.messageID})
}

// finish closes an answer that is whole.
func (w *writer) finish(ctx context.Context, stopReason string) (answer, error) {
	if err := w.close(ctx); err != nil {
		return answer{}, err
	}
	a := answer{messageID: w.messageID, stopReason: stopReason}
	for _, p := range w.parts {
		part := model.Part{Kind: p.kind, Text: p.text.String(), Seal: p.seal}
		if p.call != nil {
			c := p.call.whole(w.id("call", w.calls.Add(1)))
			a.calls = append(a.calls, c)
			part = c.Part
		}
		a.parts = append(a.parts, part)
	}
	return a, nil
}

// eachPiece cuts a clean text into deltas that fit an event.
func eachPiece(s string, do func(string) error) error {
	for s != "" {
		p := event.Truncate(s, event.MaxDeltaBytes)
		if err := do(p); err != nil {
			return err
		}
		s = s[len(p):]
	}
	return nil
}
