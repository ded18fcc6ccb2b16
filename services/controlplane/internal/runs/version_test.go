package runs_test

import (
	"context"
	"errors"
	"testing"

	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// A conversation stays on the version of its agent that it began with, whatever is
// made since: in its worker, in another one, and with another control plane.
func TestAConversationStaysOnItsVersion(t *testing.T) {
	bound := make(chan uint32, 1)
	script := func(s **runstest.Stack) runstest.Script {
		return func(ctx context.Context, p *runstest.Play) error {
			bound <- p.Bound.Agent.Version
			return turn(s, "As told: "+p.Bound.Agent.Prompt)(ctx, p)
		}
	}
	o := runstest.Options{Backend: bindingtest.NewMemory(), Agents: &agentstoretest.Memory{}}
	s, stop := living(t, script, o)
	says := func(s *runstest.Stack, conversation string, want uint32) runs.Started {
		t.Helper()
		r, err := s.Runs.Start(t.Context(), runstest.Caller(), runs.StartRequest{AgentID: "demo", ConversationID: conversation, Message: "hi"})
		if err != nil {
			t.Fatal(err)
		}
		last[event.RunFinished](t, followIn(t, s, conversation, r.RunID))
		if got := <-bound; got != want {
			t.Errorf("%s is on version %d, want %d", conversation, got, want)
		}
		if got := s.Record(t, r.BindingID).Identity.AgentVersion; got != want {
			t.Errorf("the record of %s names version %d, want %d", conversation, got, want)
		}
		return r
	}
	says(s, "c1", 1)
	d, err := agents.NewDraft("demo", []byte(`{"harness":"native","adapter_version":"1.0.0","model_alias":"demo","prompt":"Another one."}`))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := s.Agents.Put(t.Context(), d, 1); err != nil || a.Version != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
	r := says(s, "c1", 1)
	says(s, "c2", 2)
	before := s.Record(t, r.BindingID)
	s.Provider.Kill(before.Lease.ClaimName)
	says(s, "c1", 1)
	if after := s.Record(t, r.BindingID); after.Generation == before.Generation {
		t.Error("it is the same worker")
	}
	stop()
	o.Owner = "cp-after"
	again, stop := living(t, script, o)
	defer stop()
	says(again, "c1", 1)
	says(again, "c2", 2)
	says(again, "c3", 2)
}

// living is a stack with an end of its own.
func living(t *testing.T, script func(**runstest.Stack) runstest.Script, o runstest.Options) (s *runstest.Stack, stop func()) {
	t.Helper()
	s = runstest.Make(t, script(&s), o)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Runs.Run(ctx) }()
	return s, func() {
		end()
		if err := errors.Join(<-ended, s.Provider.Close()); err != nil {
			t.Error(err)
		}
	}
}
