package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

const goodResume = `{"interrupt_id":"i1","revision":1,"form":{"which":"left"}}`

// asksOnce asks in a first run and says the answer in the next.
func asksOnce(s **runstest.Stack) runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started()); err != nil {
			return err
		}
		if p.Resume != nil {
			if err := p.Text(ctx, "m1", string(p.Resume.Decision.Form)); err != nil {
				return err
			}
			return finishes(ctx, s, p)
		}
		asks := event.InterruptRequested{
			InterruptID: "i1", InterruptType: event.InterruptFormInput, AgentID: "demo", Prompt: "Which?",
			Fields: []event.FormField{{FieldName: "which", FieldType: "select", FieldValues: []string{"left", "right"}, Required: true}},
		}
		if err := p.Emit(ctx, asks); err != nil {
			return err
		}
		if err := (*s).Interrupt(ctx, p, "snap-asks", asks); err != nil {
			return err
		}
		return p.Emit(ctx, event.RunInterrupted{InterruptID: "i1", Reason: event.InterruptedForHumanInput})
	}
}

type interruptState struct {
	RunID     string         `json:"run_id"`
	Revision  uint64         `json:"revision"`
	Interrupt map[string]any `json:"interrupt"`
}

func TestAnInterruptIsAnswered(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: asksOnce})
	const state = "/api/v1/conversations/c1/interrupt-state?agent_id=demo"
	var s interruptState
	if f.get(t, state).json(t, &s); s.Interrupt != nil {
		t.Fatalf("before anything: %+v", s)
	}
	id := f.start(t, "hi")
	f.ended(t, id)
	if f.get(t, state).json(t, &s); s.RunID != id || s.Revision != 1 || s.Interrupt["interrupt_id"] != "i1" || s.Interrupt["prompt"] != "Which?" {
		t.Fatalf("%+v", s)
	}
	refused(t, f.post(t, "/api/v1/runs", goodStart), http.StatusConflict, fault.InterruptConflict, "")
	refused(t, f.post(t, "/api/v1/runs/"+id+":resume", strings.Replace(goodResume, "left", "up", 1)), http.StatusBadRequest, fault.InvalidRequest, "form: ")
	refused(t, f.post(t, "/api/v1/runs/"+id+":resume", strings.Replace(goodResume, ":1", ":2", 1)), http.StatusConflict, fault.InterruptConflict, "")
	refused(t, f.post(t, "/api/v1/runs/"+id+":resume", strings.Replace(goodResume, "i1", "i2", 1)), http.StatusNotFound, fault.InterruptNotFound, "")

	var first, again struct {
		RunID string `json:"run_id"`
	}
	a := f.post(t, "/api/v1/runs/"+id+":resume", goodResume)
	if a.json(t, &first); a.status != http.StatusAccepted || first.RunID == "" || first.RunID == id {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if e := f.ended(t, first.RunID); e.Type() != event.TypeRunFinished {
		t.Fatalf("%+v", e)
	}
	if body := string(f.get(t, "/api/v1/runs/"+first.RunID+"/events").body); !strings.Contains(body, `{\"which\":\"left\"}`) {
		t.Errorf("the answer did not arrive: %s", body)
	}
	if f.post(t, "/api/v1/runs/"+id+":resume", goodResume).json(t, &again); again != first {
		t.Errorf("the same decision again: %+v", again)
	}
	refused(t, f.post(t, "/api/v1/runs/"+id+":resume", strings.Replace(goodResume, "left", "right", 1)), http.StatusConflict, fault.InterruptConflict, "")
	s = interruptState{}
	if f.get(t, state).json(t, &s); s.Interrupt != nil {
		t.Errorf("still there: %+v", s)
	}
}

// A decision needs the same right as a start, and sees only what is the caller's.
func TestWhoMayAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: asksOnce})
	id := f.start(t, "hi")
	f.ended(t, id)
	f.grants.allow("user-2", authz.CanInvoke, authz.AgentID("demo"))
	refused(t, f.send(t, f.requestTo(t, f.public, "user-2", http.MethodPost, "/api/v1/runs/"+id+":resume", goodResume)), http.StatusNotFound, fault.NotFound, "")
	var s interruptState
	if f.send(t, f.requestTo(t, f.public, "user-2", http.MethodGet, "/api/v1/conversations/c1/interrupt-state?agent_id=demo", "")).json(t, &s); s.Interrupt != nil {
		t.Errorf("another caller's conversation: %+v", s)
	}
	f.grants.revoke("user-1", authz.CanInvoke, authz.AgentID("demo"))
	refused(t, f.post(t, "/api/v1/runs/"+id+":resume", goodResume), http.StatusForbidden, fault.AccessDenied, "")
	refused(t, f.get(t, "/api/v1/conversations/c1/interrupt-state?agent_id=demo"), http.StatusForbidden, fault.AccessDenied, "")
	refused(t, f.get(t, "/api/v1/conversations/c1/interrupt-state"), http.StatusBadRequest, fault.InvalidRequest, "agent_id: ")
}
