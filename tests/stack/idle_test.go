package stack_test

import (
	"context"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// A sandbox that waits too long is given back and its lease says so; the next turn
// goes on in another one, from the committed head.
func TestAnIdleConversationHibernates(t *testing.T) {
	s := up(t, folder(t), "--idle-after", "1s")
	ctx, cancel := context.WithTimeout(t.Context(), turnTimeout)
	defer cancel()
	c, err := s.Client(ctx, stack.User)
	if err != nil {
		t.Fatal(err)
	}
	tell := func(message string) string {
		t.Helper()
		run, err := c.Start(ctx, apiclient.Start{AgentID: s.Agents[0], ConversationID: "c-1", Message: message})
		if err != nil {
			t.Fatal(err)
		}
		events, err := c.Follow(ctx, run.RunID)
		if err != nil || events[len(events)-1].Type != "run.finished" {
			t.Fatalf("%s, %v", events[len(events)-1].Raw, err)
		}
		var all strings.Builder
		for _, e := range events {
			all.Write(e.Data)
		}
		return all.String()
	}
	tell("The word is periwinkle.")
	operator, err := s.OperatorClient(ctx, stack.Operator)
	if err != nil {
		t.Fatal(err)
	}
	var b apiclient.Binding
	if err := stack.Until(ctx, func() (bool, error) {
		all, _, err := operator.Bindings(ctx, "")
		if err != nil || len(all) != 1 || all[0].Lease == nil {
			return false, err
		}
		b = all[0]
		return b.Lease.State == "hibernated", nil
	}); err != nil {
		t.Fatalf("it does not hibernate: %+v: %v", b, err)
	}
	if b.Generation != 2 || b.Sandbox != nil {
		t.Errorf("hibernated in generation %d with the sandbox %+v", b.Generation, b.Sandbox)
	}
	if said := tell("What was the word?"); !strings.Contains(said, "periwinkle") {
		t.Errorf("it does not remember: %s", said)
	}
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}
