package delegation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/delegation"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// catalogue has agents of which each may delegate to the next, the last to the
// first, and a to a stranger.
func catalogue(ids ...string) string {
	var all []string
	for i, id := range ids {
		to := []string{ids[(i+1)%len(ids)]}
		if i == 0 {
			to = append(to, "stranger")
		}
		raw, err := json.Marshal(map[string]any{
			"agent_id": id, "name": "The " + id, "harness": runstest.HarnessID, "adapter_version": runstest.AdapterVersion, "model_alias": "m", "delegates": to,
			"profile": "default",
		})
		if err != nil {
			panic(err)
		}
		all = append(all, string(raw))
	}
	return `{"agents":[` + strings.Join(all, ",") + `]}`
}

// allowing lets the user use all agents but these.
type allowing []string

func (a allowing) Check(_ context.Context, subject, relation, object string) error {
	for _, id := range a {
		if object == authz.AgentID(id) {
			return fault.New(fault.AccessDenied, "test")
		}
	}
	if subject != runstest.Caller().Subject || relation != authz.CanInvoke {
		return fault.New(fault.AccessDenied, "test")
	}
	return nil
}

// heard is what a watcher was told.
type heard struct {
	runID, name string
	events      []event.Event
	// stop ends the watching at the first event.
	stop error
}

func (h *heard) Begun(runID, name string) error { h.runID, h.name = runID, name; return nil }

func (h *heard) Event(raw json.RawMessage) error {
	var e event.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	h.events = append(h.events, e)
	return h.stop
}

// stand is a control plane whose agents do what a message says: a message "a b c"
// is delegated to a with the message "b c", and the empty one is said.
type stand struct {
	*runstest.Stack
	service *delegation.Service
	effects *binding.Effects
	// got is what the calls of the outermost run gave.
	got chan error
	top *heard
	// bound has the agents as workers were bound with them.
	bound chan string
	// again has the run that the same call got when it was repeated.
	again chan string
	// traces are those in which agents work.
	traces chan trace.TraceID
}

func newStand(t *testing.T, authorizer delegation.Authorizer, top *heard, ids ...string) *stand {
	t.Helper()
	s := &stand{got: make(chan error, 1), top: top, bound: make(chan string, 16), again: make(chan string, 16), traces: make(chan trace.TraceID, 16)}
	s.Stack = runstest.New(t, s.play, runstest.Options{Catalogue: catalogue(ids...)})
	s.service = delegation.New(s.Runs, s.Agents, authorizer, slog.New(slog.DiscardHandler))
	s.effects = binding.NewEffects(s.Writer)
	return s
}

func (s *stand) play(ctx context.Context, p *runstest.Play) error {
	if err := p.Emit(ctx, event.RunStarted{HarnessID: runstest.HarnessID, AdapterVersion: runstest.AdapterVersion}); err != nil {
		return err
	}
	s.traces <- trace.SpanContextFromContext(ctx).TraceID()
	s.bound <- fmt.Sprintf("%s %t %t", p.Bound.Agent.ID, p.Bound.Interrupts.FormInput, p.Bound.Interrupts.ToolApproval)
	next, rest, more := strings.Cut(p.Turn.Message, " ")
	switch {
	case next == "wait":
		<-ctx.Done()
		return ctx.Err()
	case more:
		inner := &heard{}
		if p.Bound.Agent.ID == "a" {
			inner = s.top
		}
		err := s.delegate(ctx, p.Turn.Envelope, next, rest, inner)
		if p.Bound.Agent.ID == "a" {
			s.got <- err
		}
		if err != nil {
			if err := p.Text(ctx, "m1", "refused: "+string(fault.CodeOf(err))); err != nil {
				return err
			}
		}
	}
	if err := p.Text(ctx, "m2", p.Bound.Agent.ID+" is done"); err != nil {
		return err
	}
	if err := s.Commit(ctx, p, "snap-"+p.Turn.Envelope.RunID); err != nil {
		return err
	}
	return p.Emit(ctx, event.RunFinished{StopReason: "stop"})
}

// traceOfCall is that of every call that delegates.
var traceOfCall = trace.TraceID{7}

// delegate is what the ToolBroker does: it admits the call, and asks within it.
func (s *stand) delegate(ctx context.Context, env fence.Envelope, agentID, message string, to delegation.Watcher) error {
	env.IdempotencyKey = "call-1"
	ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceOfCall, SpanID: trace.SpanID{1}}))
	g, err := s.Guard.Admit(ctx, env)
	if err != nil {
		return err
	}
	var refused error
	_, err = s.effects.Do(ctx, g, binding.Effect{Key: "call-1", Kind: "tool", ArgsDigest: message}, func(ctx context.Context) ([]byte, error) {
		refused = s.service.Delegate(ctx, delegation.Request{Grant: g, AgentID: agentID, Message: message}, to)
		if refused == nil {
			again := &heard{}
			if err := s.service.Delegate(ctx, delegation.Request{Grant: g, AgentID: agentID, Message: message}, again); err != nil {
				return nil, err
			}
			s.again <- again.runID
		}
		return []byte("{}"), nil
	})
	return errors.Join(refused, err)
}

func (s *stand) start(t *testing.T, message string) runs.Started {
	t.Helper()
	r, err := s.Runs.Start(t.Context(), runstest.Caller(), runs.StartRequest{AgentID: "a", ConversationID: "c1", Message: message})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// follow gives the end of a run.
func (s *stand) follow(t *testing.T, runID string) event.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last event.Event
	err := s.Runs.Follow(ctx, runstest.Caller(), runID, runs.FollowOptions{}, func(_ uint64, raw json.RawMessage) error {
		return json.Unmarshal(raw, &last)
	})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

func TestDelegate(t *testing.T) {
	top := &heard{}
	s := newStand(t, allowing{}, top, "a", "b")
	r := s.start(t, "b hello")
	if err := <-s.got; err != nil {
		t.Fatal(err)
	}
	s.follow(t, r.RunID)
	if again := <-s.again; again != top.runID {
		t.Errorf("the same call again is the run %s, and was %s", again, top.runID)
	}
	if top.name != "The b" || len(top.events) == 0 || top.events[0].RunID != top.runID || top.runID == r.RunID {
		t.Fatalf("told of %+v", top)
	}
	if _, ok := top.events[len(top.events)-1].Data.(event.RunFinished); !ok {
		t.Errorf("the last event is %+v", top.events[len(top.events)-1])
	}
	// It is the caller's own run, in a binding of its own; its agent can ask nobody.
	status, err := s.Runs.Status(t.Context(), runstest.Caller(), top.runID)
	if err != nil || status.AgentID != "b" || status.BindingID == r.BindingID {
		t.Errorf("%+v, %v", status, err)
	}
	if a, b := <-s.traces, <-s.traces; a == b || b != traceOfCall {
		t.Errorf("the traces are %s, and %s in the delegated run", a, b)
	}
	if a, b := <-s.bound, <-s.bound; a != "a true true" || b != "b false false" {
		t.Errorf("bound with %s and %s", a, b)
	}
	d, err := s.Writer.Backend().LoadRun(t.Context(), top.runID)
	if by := d.DelegatedBy; err != nil || by == nil || by.RunID != r.RunID || by.BindingID != r.BindingID || by.Key != "call-1" || len(by.Agents) != 1 || by.Agents[0] != "a" {
		t.Errorf("delegated by %+v, %v", by, err)
	}
	// Its sandbox waits for no next turn.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.Record(t, status.BindingID).Generation == 1 {
		<-tick.C
	}
}

func TestWhoMayNotBeDelegatedTo(t *testing.T) {
	ids := []string{"a", "b", "c", "d", "e", "f"}
	for name, tc := range map[string]struct {
		authorizer allowing
		ids        []string
		message    string
		// code of the top call, or what an agent below was told.
		code  fault.Code
		below string
	}{
		"not in the list":                   {nil, ids, "c hello", fault.CapabilityScope, ""},
		"in the list, and not there":        {nil, ids, "stranger hello", fault.NotFound, ""},
		"not for the user":                  {allowing{"b"}, ids, "b hello", fault.AccessDenied, ""},
		"at work already":                   {nil, ids[:2], "b a hello", "", "refused: invalid_request"},
		"a circle of three":                 {nil, ids[:3], "b c a hello", "", "b is done"},
		"the fifth":                         {nil, ids, "b c d e f hello", "", "b is done"},
		"somebody below whom nobody allows": {allowing{"c"}, ids, "b c hello", "", "refused: access_denied"},
	} {
		t.Run(name, func(t *testing.T) {
			top := &heard{}
			s := newStand(t, tc.authorizer, top, tc.ids...)
			r := s.start(t, tc.message)
			err := <-s.got
			s.follow(t, r.RunID)
			if (err == nil) != (tc.code == "") || tc.code != "" && !fault.Is(err, tc.code) {
				t.Fatalf("got %v", err)
			}
			if (top.runID == "") != (tc.code != "") {
				t.Errorf("a run: %q", top.runID)
			}
			var said strings.Builder
			for _, e := range top.events {
				if d, ok := e.Data.(event.TextDelta); ok {
					said.WriteString(d.Delta + "\n")
				}
			}
			if !strings.Contains(said.String(), tc.below) {
				t.Errorf("the agent said %q", said.String())
			}
			// However long the chain is, five agents work at most, and none twice.
			seen := map[string]bool{}
			for len(s.bound) > 0 {
				agent := <-s.bound
				if seen[agent] || len(seen) > delegation.MaxDepth {
					t.Errorf("%s works too", agent)
				}
				seen[agent] = true
			}
		})
	}
}

// Nothing is delegated that was not admitted, or for a run that is over.
func TestOnlyWhatWasAdmittedIsDelegated(t *testing.T) {
	s := newStand(t, allowing{}, &heard{}, "a", "b")
	r := s.start(t, "wait")
	<-s.bound
	rec := s.Record(t, r.BindingID)
	env := fence.Envelope{
		BindingID: rec.ID, Epoch: rec.Epoch, Generation: rec.Generation, RunID: r.RunID, RequestID: "q", IdempotencyKey: "call-1", Deadline: time.Now().Add(time.Minute),
	}
	g, err := s.Guard.Admit(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	told := &heard{}
	if err := s.service.Delegate(t.Context(), delegation.Request{Grant: g, AgentID: "b", Message: "hello"}, told); !fault.Is(err, fault.StaleLease) || told.runID != "" {
		t.Errorf("not admitted: %v, %+v", err, told)
	}
	if _, err := s.Runs.Cancel(t.Context(), runstest.Caller(), r.RunID, event.CancelledByClient); err != nil {
		t.Fatal(err)
	}
	if err := s.service.Delegate(t.Context(), delegation.Request{Grant: g, AgentID: "b", Message: "hello"}, told); !fault.Is(err, fault.StaleLease) || told.runID != "" {
		t.Errorf("for a run that is over: %v, %+v", err, told)
	}
}

// A run that nobody wants to hear of any more is cancelled.
func TestADelegatedRunEndsWithItsCall(t *testing.T) {
	top := &heard{stop: errors.New("no more")}
	s := newStand(t, allowing{}, top, "a", "b")
	r := s.start(t, "b wait")
	if err := <-s.got; err == nil {
		t.Error("no error")
	}
	s.follow(t, r.RunID)
	if end, ok := s.follow(t, top.runID).Data.(event.RunCancelled); !ok || end.Reason != event.CancelledByDisconnect {
		t.Errorf("the delegated run ended by %+v", end)
	}
}
