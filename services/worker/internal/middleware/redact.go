package middleware

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/telemetry/redact"
	"cofferdam.dev/services/worker/internal/harness"
)

// redactResults masks secrets in the results of tools: in every string by itself, keys
// included.
func redactResults(raw json.RawMessage) (step, error) {
	var o struct {
		Patterns []string `json:"patterns"`
	}
	if err := options(raw, &o); err != nil {
		return nil, err
	}
	if len(o.Patterns) == 0 || len(o.Patterns) > len(redact.Names()) {
		return nil, fmt.Errorf("patterns: some of %v", redact.Names())
	}
	var hide []*regexp.Regexp
	for _, name := range o.Patterns {
		p, ok := redact.Pattern(name)
		if !ok {
			return nil, fmt.Errorf("patterns: some of %v", redact.Names())
		}
		hide = append(hide, p)
	}
	return func(next harness.ToolCaller) harness.ToolCaller {
		return onResult(next, func(result json.RawMessage) json.RawMessage { return masked(result, hide) })
	}, nil
}

// masked gives a result with what the patterns match replaced. A result that
// nothing matches stays as it is, byte for byte.
func masked(result json.RawMessage, hide []*regexp.Regexp) json.RawMessage {
	m := masker{hide: hide}
	out, err := m.value(result)
	switch {
	case err != nil:
		// No JSON, so a tool's text: what it becomes is a string.
		text, _ := event.ProjectText(m.text(string(result)), len(result)+maxResultBytes)
		return json.RawMessage(text)
	case !m.found:
		return result
	}
	return out
}

type masker struct {
	hide  []*regexp.Regexp
	found bool
}

func (m *masker) text(s string) string {
	for _, p := range m.hide {
		if p.MatchString(s) {
			m.found = true
			s = p.ReplaceAllLiteralString(s, redact.Mask)
		}
	}
	return s
}

// value copies JSON token by token: numbers and the order of keys stay as they
// are.
func (m *masker) value(in json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	var out bytes.Buffer
	w := writer{out: &out}
	for whole := false; ; {
		token, err := d.Token()
		if whole && errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		if whole {
			return nil, errors.New("text after the value")
		}
		if s, ok := token.(string); ok {
			token = m.text(s)
		}
		if err := w.put(token); err != nil {
			return nil, err
		}
		whole = len(w.open) == 0
	}
}

// writer writes tokens as JSON.
type writer struct {
	out  *bytes.Buffer
	open []*container
}

// container is an open object or list, and how many tokens stand in it.
type container struct {
	object bool
	n      int
}

func (w *writer) put(token json.Token) error {
	if delim, ok := token.(json.Delim); ok && strings.ContainsRune("]}", rune(delim)) {
		w.open = w.open[:len(w.open)-1]
		w.out.WriteRune(rune(delim))
		return nil
	}
	if len(w.open) > 0 {
		c := w.open[len(w.open)-1]
		switch {
		case c.object && c.n%2 == 1:
			w.out.WriteByte(':')
		case c.n > 0:
			w.out.WriteByte(',')
		}
		c.n++
	}
	if delim, ok := token.(json.Delim); ok {
		w.open = append(w.open, &container{object: delim == '{'})
		w.out.WriteRune(rune(delim))
		return nil
	}
	e := json.NewEncoder(w.out)
	e.SetEscapeHTML(false)
	if err := e.Encode(token); err != nil {
		return err
	}
	w.out.Truncate(w.out.Len() - 1) // the line feed
	return nil
}
