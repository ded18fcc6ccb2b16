package demomodel

import (
	"regexp"
	"slices"
)

// What the instructions of a call say when it is none of the conversation's own.
var (
	titleTask   = regexp.MustCompile(`(?i)\btitles?\b`)
	summaryTask = regexp.MustCompile(`(?i)\bsummar(?:y|ies|i[sz]\w*)\b`)
)

const (
	// maxTask is how much of each text of the instructions is looked at, in bytes.
	maxTask = 1 << 10
	// sideTitle is the name of every conversation.
	sideTitle = "A conversation with the demo model."
)

// side answers a call that an agent makes on the side: by the schema that it
// brings, with the same title always, or with a summary, which has to carry on
// what would be forgotten otherwise. ok is false for a call that is none: one
// that offers tools is none unless it brings a schema.
func (r *request) side() (answer string, ok bool) {
	switch {
	case r.schema != nil:
		return instance(r.schema), true
	case len(r.tools) > 0:
		return "", false
	case r.instructs(titleTask):
		return sideTitle, true
	case r.instructs(summaryTask):
		return r.remember(len(r.messages)), true
	default:
		return "", false
	}
}

// instructs reports whether the instructions begin with words of a task.
func (r *request) instructs(task *regexp.Regexp) bool {
	begins := func(text string) bool { return task.MatchString(text[:min(len(text), maxTask)]) }
	return begins(r.instructions) || slices.ContainsFunc(r.messages, func(m message) bool {
		return m.system && slices.ContainsFunc(m.texts, begins)
	})
}
