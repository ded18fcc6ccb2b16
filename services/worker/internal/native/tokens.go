package native

import "cofferdam.dev/services/worker/internal/native/model"

// What tokens are taken to cost where no provider has counted them.
const (
	bytesPerToken = 4
	fileTokens    = 1500
	// bytesPerFileToken is of documents, whose text is a part of what they are.
	bytesPerFileToken = 20
	percent           = 100
)

// tokenLimit is from where on the conversation is shortened; 0 is never.
func (l *level) tokenLimit() int {
	m := l.construction.Model
	if m.ContextTokens <= 0 {
		return 0
	}
	limit := m.ContextTokens * l.options.CompactAtPercent / percent
	if rest := m.ContextTokens - m.MaxOutputTokens; rest > 0 {
		limit = min(limit, rest)
	}
	return max(limit, 1)
}

// see keeps what the provider counted for the conversation with its answer, which
// is about to be added.
func (l *level) see(u model.Usage) {
	if u.Input == nil {
		return
	}
	l.seen, l.seenUpTo = *u.Input, len(l.conv.Messages)
	if u.Output != nil {
		l.seen, l.seenUpTo = l.seen+*u.Output, l.seenUpTo+1
	}
}

// tokens that the next model call will take: what was counted, and an estimate
// of what has come since.
func (l *level) tokens() int {
	n, from := int(min(l.seen, 1<<40)), min(l.seenUpTo, len(l.conv.Messages))
	if l.seen == 0 {
		n, from = len(l.agent.prompt)/bytesPerToken, 0
		for _, o := range l.offered() {
			n += (len(o.Name) + len(o.Description) + len(o.Schema)) / bytesPerToken
		}
	}
	return n + l.estimate(from)
}

// estimate of the messages from one on.
func (l *level) estimate(from int) (n int) {
	for _, m := range l.conv.Messages[from:] {
		n += tokensOf(m)
	}
	return n
}

func tokensOf(m model.Message) int {
	n := 4
	for _, p := range m.Parts {
		n += (len(p.Text) + len(p.Name) + len(p.Arguments)) / bytesPerToken
		if isFile(p) {
			n += fileTokens
		}
		if p.Kind == model.Document {
			n += len(p.Data) / bytesPerFileToken
		}
	}
	return n
}
