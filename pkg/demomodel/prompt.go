package demomodel

import (
	"slices"
	"strings"
)

// prompt is the index of the user's message that is to be answered, or -1 where
// there is none, because everything is answered.
//
// Between the last answer and now there may stand several messages of the user:
// those before the last are turns that failed, and their commands were for then.
// An agent's notes are no message, and results of tools belong to the message
// before them.
func (r *request) prompt() int {
	open := r.messages[r.answered():]
	last := slices.IndexFunc(open, func(m message) bool { return m.role == roleUser }) // a note, if nothing better
	results := false
	for i, m := range slices.Backward(open) {
		if m.isWord() {
			return i + len(r.messages) - len(open)
		}
		results = results || m.role == roleTool
	}
	if results {
		before := r.messages[:r.answered()]
		for i, m := range slices.Backward(before) {
			if m.isWord() {
				return i
			}
		}
	}
	if last >= 0 {
		last += len(r.messages) - len(open)
	}
	return last
}

// answered is how many messages there are up to the last of the assistant.
func (r *request) answered() int {
	for i, m := range slices.Backward(r.messages) {
		if m.role == roleAssistant {
			return i + 1
		}
	}
	return 0
}

// isWord reports whether m is a message of the user that is more than notes.
func (m message) isWord() bool { return m.role == roleUser && !m.isNote() }

// isNote reports whether a message holds nothing but notes of an agent.
func (m message) isNote() bool {
	return !slices.ContainsFunc(m.texts, func(t string) bool { return !isNote(t) })
}

// words is what the user said: without the notes, unless there is nothing else.
func (m message) words() string {
	said := slices.DeleteFunc(slices.Clone(m.texts), isNote)
	if len(said) == 0 {
		said = m.texts
	}
	return strings.Join(said, "\n")
}

// commands is the one block of text that may hold commands: the last that is no
// note. An agent merges the message of a turn that failed with the next one, as
// a block of its own before it.
func (m message) commands() string {
	for _, t := range slices.Backward(m.texts) {
		if !isNote(t) {
			return t
		}
	}
	return m.text()
}

// isNote reports whether text is empty or all in tags, as agents mark what they
// add to a message of the user: <system-reminder>…</system-reminder>.
func isNote(text string) bool {
	for {
		text = strings.TrimSpace(text)
		if text == "" {
			return true
		}
		tag := openTag(text)
		if tag == "" {
			return false
		}
		_, rest, ok := strings.Cut(text, "</"+tag+">")
		if !ok {
			return false
		}
		text = rest
	}
}

// openTag is the name of the tag that text begins with, or "".
func openTag(text string) string {
	inside, ok := strings.CutPrefix(text, "<")
	if !ok {
		return ""
	}
	end := strings.IndexFunc(inside, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
	if end <= 0 || !strings.ContainsRune("> \t\n", rune(inside[end])) {
		return ""
	}
	return inside[:end]
}
