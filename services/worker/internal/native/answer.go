package native

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// answer is one answer of the model.
type answer struct {
	text       string
	messageID  string
	calls      []toolCall
	stopReason string
}

func (a answer) message() message {
	m := message{Role: roleAssistant, Text: a.text}
	for _, c := range a.calls {
		m.Calls = append(m.Calls, c.call)
	}
	return m
}

// writer turns the chunks of one answer into events.
type writer struct {
	*turn
	text strings.Builder
	// messageID and reasoningID are empty while nothing of the kind is open.
	messageID, reasoningID string
	calls                  []*partialCall
	argumentBytes          int
	told                   usage // as the last chunk told it
	stopReason             string
}

// chunk takes one chunk. Only the first choice was asked for.
func (w *writer) chunk(ctx context.Context, c openai.ChatCompletionChunk) error {
	if c.JSON.Usage.Valid() {
		w.told = usageOf(c.Usage)
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := c.Choices[0]
	if err := w.reason(ctx, event.SanitizeText(reasoningOf(choice.Delta))); err != nil {
		return err
	}
	// A refusal is an answer too, and its text is for the user.
	if err := w.say(ctx, event.SanitizeText(choice.Delta.Content+choice.Delta.Refusal)); err != nil {
		return err
	}
	for _, d := range choice.Delta.ToolCalls {
		if err := w.collect(d); err != nil {
			return err
		}
	}
	if choice.FinishReason != "" {
		w.stopReason = choice.FinishReason
	}
	if most := w.construction.Limits.StateBytes; most > 0 && w.text.Len()+w.argumentBytes > most {
		return fault.New(fault.StateTooLarge, "native.chunk")
	}
	return nil
}

// reasoningOf reads the field that providers of this wire use for reasoning.
func reasoningOf(d openai.ChatCompletionChunkChoiceDelta) string {
	f, ok := d.JSON.ExtraFields["reasoning_content"]
	if !ok {
		return ""
	}
	var s string
	if json.Unmarshal([]byte(f.Raw()), &s) != nil {
		return ""
	}
	return s
}

func (w *writer) reason(ctx context.Context, s string) error {
	if s == "" {
		return nil
	}
	if w.reasoningID == "" {
		w.reasonings++
		w.reasoningID = w.id("rsn", w.reasonings)
		if err := w.emit.Emit(ctx, event.Draft{Data: event.ReasoningStarted{MessageID: w.reasoningID}}); err != nil {
			return err
		}
	}
	return eachPiece(s, func(p string) error {
		return w.emit.Emit(ctx, event.Draft{Data: event.ReasoningDelta{MessageID: w.reasoningID, Delta: p}})
	})
}

// endReasoning closes a piece of reasoning: what comes after other text is
// another piece.
func (w *writer) endReasoning(ctx context.Context) error {
	if w.reasoningID == "" {
		return nil
	}
	id := w.reasoningID
	w.reasoningID = ""
	return w.emit.Emit(ctx, event.Draft{Data: event.ReasoningFinished{MessageID: id}})
}

func (w *writer) say(ctx context.Context, s string) error {
	if s == "" {
		return nil
	}
	if err := w.endReasoning(ctx); err != nil {
		return err
	}
	if w.messageID == "" {
		w.texts++
		w.messageID = w.id("msg", w.texts)
		if err := w.emit.Emit(ctx, event.Draft{Data: event.TextStarted{MessageID: w.messageID}}); err != nil {
			return err
		}
	}
	w.text.WriteString(s)
	return eachPiece(s, func(p string) error {
		return w.emit.Emit(ctx, event.Draft{Data: event.TextDelta{MessageID: w.messageID, Delta: p}})
	})
}

// finish closes what the answer opened.
func (w *writer) finish(ctx context.Context) (answer, error) {
	if err := w.endReasoning(ctx); err != nil {
		return answer{}, err
	}
	a := answer{text: w.text.String(), messageID: w.messageID, stopReason: w.stopReason}
	if w.messageID != "" {
		if err := w.emit.Emit(ctx, event.Draft{Data: event.TextFinished{MessageID: w.messageID}}); err != nil {
			return answer{}, err
		}
	}
	w.usage.add(w.told)
	for _, c := range w.calls {
		w.called++
		a.calls = append(a.calls, c.whole(w.called, w.id("call", w.called)))
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
