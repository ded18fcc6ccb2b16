package acp

import (
	"fmt"
	"strings"

	"cofferdam.dev/pkg/event"
)

// text appends a chunk to the open message, or opens one.
func (p *projector) text(u update) []event.Draft {
	for _, begin := range p.drop {
		if strings.HasPrefix(u.text, begin) {
			return nil
		}
	}
	s, out := p.room(u.text)
	if s == "" {
		return out
	}
	out = append(out, p.closeThought()...)
	if p.messageID != "" && u.message != p.message {
		out = append(out, p.closeMessage()...)
	}
	if p.messageID == "" {
		p.texts++
		p.messageID, p.message = fmt.Sprintf("msg-%s-%d", p.tag, p.texts), u.message
		out = append(out, event.Draft{Data: event.TextStarted{MessageID: p.messageID}})
	}
	for s != "" {
		piece := event.Truncate(s, event.MaxDeltaBytes)
		out = append(out, event.Draft{Data: event.TextDelta{MessageID: p.messageID, Delta: piece}})
		s = s[len(piece):]
	}
	return out
}

// thought does the same for reasoning.
func (p *projector) thought(text string) []event.Draft {
	s, out := p.room(text)
	if s == "" {
		return out
	}
	out = append(out, p.closeMessage()...)
	if p.thoughtID == "" {
		p.thoughts++
		p.thoughtID = fmt.Sprintf("rsn-%s-%d", p.tag, p.thoughts)
		out = append(out, event.Draft{Data: event.ReasoningStarted{MessageID: p.thoughtID}})
	}
	for s != "" {
		piece := event.Truncate(s, event.MaxDeltaBytes)
		out = append(out, event.Draft{Data: event.ReasoningDelta{MessageID: p.thoughtID, Delta: piece}})
		s = s[len(piece):]
	}
	return out
}

// room cuts text at what a run may have of it.
func (p *projector) room(text string) (string, []event.Draft) {
	s := event.SanitizeText(text)
	kept := event.Truncate(s, maxRunText-p.textBytes)
	p.textBytes += len(kept)
	if len(kept) < len(s) {
		return kept, p.warn("text_cut", "The agent has written more text than a run may have. The rest is left out.")
	}
	return kept, nil
}

func (p *projector) closeMessage() []event.Draft {
	if p.messageID == "" {
		return nil
	}
	id := p.messageID
	p.messageID, p.message = "", ""
	return []event.Draft{{Data: event.TextFinished{MessageID: id}}}
}

func (p *projector) closeThought() []event.Draft {
	if p.thoughtID == "" {
		return nil
	}
	id := p.thoughtID
	p.thoughtID = ""
	return []event.Draft{{Data: event.ReasoningFinished{MessageID: id}}}
}

// closeTexts comes before a tool call begins: what follows it is another message.
func (p *projector) closeTexts() []event.Draft {
	return append(p.closeThought(), p.closeMessage()...)
}
