package native

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/native/model"
)

// Words that stand for what was left out. A conversation goes on behind them.
const (
	summarized = "[Summary of the conversation so far]\n"
	leftOut    = "[The older part of this conversation was left out]"
)

// keep is what the messages that stay may cost at most; 0 is no bound.
type keep struct{ tokens, bytes int }

// makeRoom shortens the conversation where the next model call, or the state,
// has no room for it.
func (l *level) makeRoom(ctx context.Context) error {
	if limit, n := l.tokenLimit(), l.tokens(); limit > 0 && n > limit {
		if _, err := l.compact(ctx, l.share(limit/2, n)); err != nil {
			return err
		}
	}
	return l.makeStateRoom(ctx, l.conv.bytes)
}

// makeStateRoom shortens the conversation where its size passes the bound of the
// state. Only what cannot be shortened is too large.
func (l *level) makeStateRoom(ctx context.Context, size func() int) error {
	const op = "native.makeRoom"
	most := l.construction.Limits.StateBytes
	over := size() - most
	if most <= 0 || over <= 0 {
		return nil
	}
	at := l.conv.cut(keep{bytes: most / 2})
	if costs := bytesOf(l.conv.Messages[:at]); costs <= over {
		return fault.New(fault.StateTooLarge, op)
	}
	if ok, err := l.compact(ctx, keep{bytes: most / 2}); err != nil {
		return err
	} else if !ok || size() > most {
		return fault.New(fault.StateTooLarge, op)
	}
	return nil
}

// fit is the payload of the state, within its bound.
func (l *level) fit(ctx context.Context, s *state) ([]byte, error) {
	size := func() int {
		raw, err := marshal(s.withoutFiles(maxState))
		if err != nil {
			return 0 // told by encode
		}
		return len(raw)
	}
	if err := l.makeStateRoom(ctx, size); err != nil {
		return nil, err
	}
	return s.encode(l.construction.Limits.StateBytes)
}

// half is what stays where nobody knows how much is too much.
func (l *level) half() keep { return l.share(l.tokens()/2, l.tokens()) }

// share is what stays for the conversation to take want of its n tokens: messages
// are measured by an estimate, which a provider's count may prove too low.
func (l *level) share(want, n int) keep {
	if estimate := l.estimate(0); estimate < n {
		want = int(float64(want) * float64(estimate) / float64(n))
	}
	return keep{tokens: max(want, 1)}
}

// compact replaces the oldest messages by a summary that the model writes, or by
// nothing if it does not. It says whether anything went.
func (l *level) compact(ctx context.Context, k keep) (bool, error) {
	at := l.conv.cut(k)
	old := l.conv.Messages[:at]
	if at == 0 || at == 1 && isSummary(old[0]) {
		return false, nil
	}
	text, err := l.summary(ctx, old)
	if err != nil {
		return false, err
	}
	first := leftOut
	if text != "" {
		first = summarized + text
	}
	rest := l.conv.Messages[at:]
	l.conv.Messages = append([]model.Message{{Role: model.User, Parts: []model.Part{{Kind: model.Text, Text: first}}}}, rest...)
	l.seen, l.seenUpTo = 0, 0
	return true, l.tell(ctx, event.Warning{
		Code: "context_compacted", Message: "Older parts of the conversation were shortened to make room.",
		Details: event.Object(fmt.Sprintf(`{"messages":%d,"summarized":%t}`, at, text != "")),
	})
}

func isSummary(m model.Message) bool {
	text := m.Joined()
	return m.Role == model.User && (strings.HasPrefix(text, summarized) || text == leftOut)
}

// cut is how many of the oldest messages go so that the rest costs no more than
// it may. The last answer stays with its results whatever they cost, and no call
// is parted from its result.
func (c *conversation) cut(k keep) int {
	at := len(c.Messages)
	tokens, bytes := 0, 0
	for i, m := range slices.Backward(c.Messages) {
		tokens += tokensOf(m)
		bytes += bytesOf([]model.Message{m})
		if m.Role == model.Tool {
			continue
		}
		fits := (k.tokens == 0 || tokens <= k.tokens) && (k.bytes == 0 || bytes <= k.bytes)
		if !fits && at < len(c.Messages) {
			break
		}
		at = i
	}
	return at
}

// bytes of the conversation in the state, its files apart.
func (c *conversation) bytes() int {
	raw, err := marshal((&state{Conversation: c}).withoutFiles(maxState))
	if err != nil {
		return 0 // told when it is committed
	}
	return len(raw)
}

func bytesOf(messages []model.Message) int {
	c := conversation{Messages: messages}
	return c.bytes()
}
