package demomodel

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// How much of what came before is quoted, in items and in bytes each.
const (
	maxItems         = 16
	maxUserExcerpt   = 256
	maxToolExcerpt   = 2 << 10
	maxResultExcerpt = 16 << 10
)

// remember is the one sentence that names what stands in the messages before
// the last one of the user.
func (r *request) remember(last int) string {
	var items []string
	for i, m := range r.messages[:max(last, 0)] {
		switch {
		case strings.TrimSpace(m.text()) == "":
		case m.role == roleTool:
			items = append(items, fmt.Sprintf("%s returned “%s”", of(m), excerpt(m.text(), maxToolExcerpt)))
		case m.role != roleUser:
		case m.isNote() && i+1 < len(r.messages) && r.messages[i+1].role == roleUser:
			// What an agent put before the user's message is none.
		default:
			items = append(items, fmt.Sprintf("you said “%s”", excerpt(m.words(), maxUserExcerpt)))
		}
	}
	if len(items) == 0 {
		return "I remember nothing from before this message."
	}
	note := ""
	if older := len(items) - maxItems; older > 0 {
		items = items[older:]
		note = fmt.Sprintf(" (and %d older things)", older)
	}
	return fmt.Sprintf("I remember from this conversation%s: %s.", note, strings.Join(items, "; "))
}

// report says what came back from the tools since the user's last message.
func report(results []message) string {
	lines := make([]string, 0, len(results))
	for _, m := range results {
		lines = append(lines, fmt.Sprintf("%s returned: %s", of(m), clip(m.text(), maxResultExcerpt)))
	}
	return strings.Join(lines, "\n")
}

// of names the tool whose result m is.
func of(m message) string {
	if m.tool == "" {
		return "a tool"
	}
	return m.tool
}

// excerpt is text on one line, at most about limit bytes long.
func excerpt(text string, limit int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return clip(strings.Join(lines, " / "), limit)
}

// clip keeps the first quarter and the last three: what a tool says last is
// what it was asked for more often than what it says first.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head, tail := limit/4, len(text)-limit*3/4
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + " … " + text[tail:]
}
