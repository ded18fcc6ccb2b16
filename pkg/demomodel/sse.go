package demomodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// sse writes server-sent events, each flushed.
type sse struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
}

func newSSE(w http.ResponseWriter) *sse {
	return &sse{w: w, flusher: http.NewResponseController(w)}
}

func (s *sse) open() {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	s.w.WriteHeader(http.StatusOK)
}

// data sends an event without a name.
func (s *sse) data(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return s.write("data: " + string(data) + "\n\n")
}

// named sends an event with a name.
func (s *sse) named(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return s.write("event: " + name + "\ndata: " + string(data) + "\n\n")
}

func (s *sse) write(frame string) error {
	if _, err := s.w.Write([]byte(frame)); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if err := s.flusher.Flush(); err != nil {
		return fmt.Errorf("flush event: %w", err)
	}
	return nil
}

// breakBody sends the beginning of a body, so that the reader sees an answer
// that is cut and not merely a connection that closed.
func breakBody(w http.ResponseWriter, id string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(`{"id":` + strconv.Quote(id) + `,`)) // it is about to be cut anyway
	_ = http.NewResponseController(w).Flush()
}
