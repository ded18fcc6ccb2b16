package demomodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// stream writes an answer as server-sent events, one chunk a word.
type stream struct {
	w         http.ResponseWriter
	flusher   *http.ResponseController
	head      chunk
	withUsage bool
}

func newStream(w http.ResponseWriter, req *request) *stream {
	return &stream{
		w:         w,
		flusher:   http.NewResponseController(w),
		head:      chunk{ID: req.completionID(), Object: "chat.completion.chunk", Created: created, Model: req.Model},
		withUsage: req.StreamOptions.IncludeUsage,
	}
}

func (s *stream) start() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)
	empty := ""
	return s.delta(delta{Role: roleAssistant, Content: &empty})
}

func (s *stream) say(piece string) error { return s.delta(delta{Content: &piece}) }

func (s *stream) think(piece string) error { return s.delta(delta{ReasoningContent: piece}) }

func (s *stream) call(n int, c toolCall) error {
	open := callDelta{Index: n, ID: c.ID, Type: c.Type, Function: functionDelta{Name: c.Function.Name}}
	if err := s.delta(delta{ToolCalls: []callDelta{open}}); err != nil {
		return err
	}
	for piece := range words(c.Function.Arguments) {
		more := callDelta{Index: n, Function: functionDelta{Arguments: piece}}
		if err := s.delta(delta{ToolCalls: []callDelta{more}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) finish(reason string, u *usage) error {
	if err := s.send(chunkChoice{FinishReason: &reason}); err != nil {
		return err
	}
	if s.withUsage {
		last := s.head
		last.Choices, last.Usage = []chunkChoice{}, u
		if err := s.event(last); err != nil {
			return err
		}
	}
	return s.write("data: [DONE]\n\n")
}

// breakOff has nothing to add: what was said is flushed already.
func (s *stream) breakOff() {}

func (s *stream) delta(d delta) error { return s.send(chunkChoice{Delta: d}) }

func (s *stream) send(c chunkChoice) error {
	next := s.head
	next.Choices = []chunkChoice{c}
	return s.event(next)
}

func (s *stream) event(c chunk) error {
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode chunk: %w", err)
	}
	return s.write("data: " + string(data) + "\n\n")
}

func (s *stream) write(frame string) error {
	if _, err := s.w.Write([]byte(frame)); err != nil {
		return fmt.Errorf("write chunk: %w", err)
	}
	if err := s.flusher.Flush(); err != nil {
		return fmt.Errorf("flush chunk: %w", err)
	}
	return nil
}
