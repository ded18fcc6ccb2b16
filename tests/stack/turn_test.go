package stack_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

const turnTimeout = 2 * time.Minute

// turn runs one turn to its end, which must be run.finished, and gives what the
// agent said.
func turn(t *testing.T, s *stack.Stack, conversation, message string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), turnTimeout)
	defer cancel()
	c, err := s.Client(ctx, stack.User)
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.Start(ctx, apiclient.Start{AgentID: s.Agents[0], ConversationID: conversation, Message: message})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Follow(ctx, run.RunID)
	if err != nil || len(events) == 0 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if last := events[len(events)-1]; last.Type != "run.finished" {
		t.Fatalf("ended as %s", last.Raw)
	}
	var b strings.Builder
	for _, e := range events {
		var d struct {
			Delta string `json:"delta"`
		}
		if e.Type != "text.delta" {
			continue
		}
		if err := json.Unmarshal(e.Data, &d); err != nil {
			t.Fatal(err)
		}
		b.WriteString(d.Delta)
	}
	return b.String()
}
