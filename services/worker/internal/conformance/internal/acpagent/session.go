package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// session is a conversation, in the form in which the model gets it.
type session struct {
	ID       string `json:"id"`
	Messages []turn `json:"messages"`
}

// turn is one message of the conversation.
type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Calls   []call `json:"tool_calls,omitempty"`
	CallID  string `json:"tool_call_id,omitempty"`
	// Images are data URLs.
	Images []string `json:"images,omitempty"`
}

// forModel are the messages as the model takes them.
func (s *session) forModel() []any {
	out := make([]any, len(s.Messages))
	for i, m := range s.Messages {
		out[i] = m
		if len(m.Images) == 0 {
			continue
		}
		parts := []object{{"type": "text", "text": m.Content}}
		for _, url := range m.Images {
			parts = append(parts, object{"type": "image_url", "image_url": object{"url": url}})
		}
		out[i] = object{"role": m.Role, "content": parts}
	}
	return out
}

// call is a tool call of the model.
type call struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func file(id string) string {
	return filepath.Join(os.Getenv("HOME"), "sessions", filepath.Base(id)+".json")
}

func (s *session) save() {
	name := file(s.ID)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		panic(err)
	}
	if err := os.WriteFile(name, raw(s), 0o600); err != nil {
		panic(err)
	}
}

func (s *session) load(id string) bool {
	text, err := os.ReadFile(file(id))
	return err == nil && json.Unmarshal(text, s) == nil
}

func (s *session) add(t turn) {
	s.Messages = append(s.Messages, t)
	s.save()
}

// said adds what the user says. Calls that were never answered are not the model's
// to know.
func (s *session) said(prompt []block) {
	text, images := prompt[0].Text, []string(nil)
	for _, b := range prompt[1:] {
		if b.Type == "image" {
			images = append(images, "data:"+b.MIMEType+";base64,"+b.Data)
		}
	}
	if n := len(s.Messages); n > 0 && len(s.Messages[n-1].Calls) > 0 {
		s.Messages = s.Messages[:n-1]
	}
	s.add(turn{Role: "user", Content: text + s.unfinished(text), Images: images})
}

// unfinished is what the model was still to do when a person was asked. A model
// that thinks knows it from the conversation; the one of the suite looks at the
// last message only.
func (s *session) unfinished(text string) string {
	if !strings.HasPrefix(text, "The user has decided on the tool calls") || len(s.Messages) == 0 {
		return ""
	}
	_, after, _ := cutLast(s.Messages[len(s.Messages)-1].Content, ">>call ")
	_, rest, _ := strings.Cut(after, "\n")
	return "\n" + rest
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
