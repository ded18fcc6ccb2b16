package e2e

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// A request whose answer was lost can be sent again, by several at once: it is
// one run.
func TestTheSameKeyIsTheSameRun(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	start := apiclient.Start{AgentID: stack.Agent, ConversationID: c.conversation, Message: ">>say once", IdempotencyKey: "k-" + rand.Text()}
	started := make([]apiclient.Started, 6)
	var g errgroup.Group
	for i := range started {
		g.Go(func() (err error) { started[i], err = w.user.Start(t.Context(), start); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, s := range started {
		if s != started[0] {
			t.Errorf("started %+v and %+v", started[0], s)
		}
	}
	c.end(t, started[0]).finished(t)
	// Also when it is over.
	if s, err := w.user.Start(t.Context(), start); err != nil || s != started[0] {
		t.Errorf("afterwards: %+v, %v", s, err)
	}
	start.Message = ">>say twice"
	if _, err := w.user.Start(t.Context(), start); apiclient.CodeOf(err) != "idempotency_conflict" {
		t.Errorf("another message under the key: %v", err)
	}
	next := c.tell(t, "What do you remember?")
	if n := strings.Count(next.text(t), "you said"); n != 1 {
		t.Errorf("it was told %d things: %q", n, next.text(t))
	}
}

// A conversation has one run at a time, and a second one is refused, not queued.
func TestAConversationHasOneRunAtATime(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	run := c.begin(t, ">>say wait\n>>sleep 60000")
	_, err := w.user.Start(t.Context(), apiclient.Start{AgentID: stack.Agent, ConversationID: c.conversation, Message: "me too"})
	var refused *apiclient.Error
	if !errors.As(err, &refused) || refused.Status != 409 || refused.Code != "already_running" || refused.Category != "conflict" {
		t.Errorf("a second run: %v", err)
	}
	if _, err := w.user.Cancel(t.Context(), run.RunID); err != nil {
		t.Fatal(err)
	}
	c.end(t, run).cancelled(t)
}

// Eight conversations at once, each with a file of its own: no text gets into
// another one.
func TestConversationsAtOnceKeepToThemselves(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	const many = 8
	names, lines, talks := make([]string, many), make([]string, many), make([]*talk, many)
	runs := make([]apiclient.Started, many)
	for i := range many {
		names[i], lines[i] = w.sample(t)
		talks[i] = w.talk()
	}
	var g errgroup.Group
	for i := range many {
		g.Go(func() (err error) {
			runs[i], err = w.user.Start(t.Context(), apiclient.Start{
				AgentID: stack.Agent, ConversationID: talks[i].conversation, Message: ">>say reading\n>>sleep 100\n" + read(names[i]),
			})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		first := talks[i].end(t, runs[i])
		first.finished(t)
		keepsTo(t, first, lines, i)
	}
	for i := range many {
		keepsTo(t, talks[i].tell(t, "What do you remember?"), lines, i)
	}
	seen := map[string]bool{}
	for i := range many {
		b := talks[i].binding(t, runs[i].BindingID)
		if b.Sandbox == nil || seen[b.BindingID] || seen[b.Sandbox.InstanceUID] {
			t.Errorf("binding or sandbox of two conversations: %+v", b)
			continue
		}
		seen[b.BindingID], seen[b.Sandbox.InstanceUID] = true, true
	}
}

func keepsTo(t *testing.T, r turn, lines []string, own int) {
	t.Helper()
	text := r.text(t)
	for i, line := range lines {
		if has := strings.Contains(text, line); has != (i == own) {
			t.Errorf("conversation %d: line %d in it: %v: %q", own, i, has, text)
		}
	}
}
