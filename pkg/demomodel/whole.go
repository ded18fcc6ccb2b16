package demomodel

import (
	"net/http"
	"strings"
)

// whole gathers an answer and writes it as one JSON body.
type whole struct {
	w       http.ResponseWriter
	head    completion
	text    strings.Builder
	thought strings.Builder
	calls   []toolCall
}

func newWhole(w http.ResponseWriter, req *request) *whole {
	return &whole{
		w:    w,
		head: completion{ID: req.completionID(), Object: "chat.completion", Created: created, Model: req.Model},
	}
}

func (b *whole) start() error { return nil }

func (b *whole) say(piece string) error {
	b.text.WriteString(piece)
	return nil
}

func (b *whole) think(piece string) error {
	b.thought.WriteString(piece)
	return nil
}

func (b *whole) call(_ int, c toolCall) error {
	b.calls = append(b.calls, c)
	return nil
}

func (b *whole) finish(reason string, u *usage) error {
	out := answer{Role: roleAssistant, ReasoningContent: b.thought.String(), ToolCalls: b.calls}
	if text := b.text.String(); text != "" || len(b.calls) == 0 {
		out.Content = &text
	}
	body := b.head
	body.Choices = []choice{{Message: out, FinishReason: reason}}
	body.Usage = u
	writeJSON(b.w, http.StatusOK, body)
	return nil
}

// breakOff sends the beginning of a body, so that the reader sees an answer
// that is cut and not merely a connection that closed.
func (b *whole) breakOff() {
	b.w.Header().Set("Content-Type", "application/json")
	b.w.WriteHeader(http.StatusOK)
	_, _ = b.w.Write([]byte(`{"id":"` + b.head.ID + `",`)) // it is about to be cut anyway
	_ = http.NewResponseController(b.w).Flush()
}
