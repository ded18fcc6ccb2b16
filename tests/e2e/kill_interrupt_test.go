package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
)

// pending is what a conversation waits for, as its interrupt-state gives it.
type pending struct {
	RunID     string `json:"run_id"`
	Revision  uint64 `json:"revision"`
	Interrupt *struct {
		ID    string `json:"interrupt_id"`
		Tools []struct {
			CallID string `json:"tool_call_id"`
		} `json:"tool_approvals"`
	} `json:"interrupt"`
}

// asks begins a turn of the agent that asks before it calls the tool.
func (l *life) asks(t *testing.T, message string) apiclient.Started {
	t.Helper()
	s, err := l.client.Start(t.Context(), apiclient.Start{AgentID: asking, ConversationID: l.conversation, Message: message})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// waits gives what the conversation waits for.
func (l *life) waits(t *testing.T) (p pending) {
	t.Helper()
	a, err := l.client.Do(t.Context(), http.MethodGet, "/api/v1/conversations/"+l.conversation+"/interrupt-state?agent_id="+asking, "", nil)
	if err != nil || a.Err() != nil {
		t.Fatal(err, a.Err())
	}
	if err := json.Unmarshal(a.Body, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// asked brings the conversation to where it waits for a person.
func (l *life) asked(t *testing.T) turn {
	t.Helper()
	r := l.end(t, l.asks(t, l.call("")))
	l.ended(t, r)
	l.isAsked(t, r)
	return r
}

// isAsked sees that the conversation waits since that turn.
func (l *life) isAsked(t *testing.T, r turn) {
	t.Helper()
	l.question = l.waits(t)
	if q := l.question; r.last().Type != "run.interrupted" || q.RunID != r.RunID || q.Interrupt == nil || len(q.Interrupt.Tools) != 1 {
		t.Fatalf("it waits for %+v after: %s", q, r)
	}
}

// decides answers what was asked, and gives the run that carries it out, or why there
// is none.
func (l *life) decides(t *testing.T, decision string) (s apiclient.Started, err error) {
	t.Helper()
	q := l.question
	body, err := json.Marshal(map[string]any{
		"interrupt_id": q.Interrupt.ID, "revision": q.Revision,
		"tool_decisions": []any{map[string]any{"tool_call_id": q.Interrupt.Tools[0].CallID, "decision": decision}},
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.client.Do(t.Context(), http.MethodPost, "/api/v1/runs/"+q.RunID+":resume", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Err(); err != nil {
		return s, err
	}
	return s, json.Unmarshal(a.Body, &s)
}

// approves is decides for a run that there has to be.
func (l *life) approves(t *testing.T) apiclient.Started {
	t.Helper()
	s, err := l.decides(t, "approve")
	if err != nil {
		t.Fatalf("approve: %v", err)
	}
	return s
}

// answered sees what holds once the question was answered by a run: the same answer
// is the same run, another one comes too late, and the conversation goes on.
func (l *life) answered(t *testing.T, run apiclient.Started, generation uint32) {
	t.Helper()
	if again := l.approves(t); again != run {
		t.Errorf("the same decision again is %+v, was %+v", again, run)
	}
	if _, err := l.decides(t, "reject"); apiclient.CodeOf(err) != "interrupt_conflict" {
		t.Errorf("another decision: %v", err)
	}
	if left := l.waits(t); left.Interrupt != nil {
		t.Errorf("it still waits for %+v", left)
	}
	l.goesOn(t, generation)
}

// goesOn runs the next turn, on a generation of the lease.
func (l *life) goesOn(t *testing.T, generation uint32) {
	t.Helper()
	next := l.end(t, l.asks(t, "What do you remember?"))
	next.finished(t)
	if status := l.ended(t, next); status.Generation != generation {
		t.Errorf("the next turn is of generation %d, want %d", status.Generation, generation)
	}
}

// whileThinking is the step at which a question waits for its answer.
const whileThinking = "while a person thinks"

func questionSteps() []string { return []string{whileThinking, beforeHead, afterHead} }

// keeps sees that a run ended as it was promised.
func (l *life) keeps(t *testing.T, p promise, r turn) {
	t.Helper()
	if end := r.ending(t); end != p.ends {
		t.Errorf("ended as %s, want %s: %s", end, p.ends, r)
	}
	if status := l.ended(t, r); status.SideEffects != p.effects {
		t.Errorf("side effects %q, want %s", status.SideEffects, p.effects)
	}
}

// A worker that dies while a person thinks is replaced, and the question stands. What
// the person decides is carried out by another worker, once.
func TestAWorkerIsKilledWhileAPersonThinks(t *testing.T) {
	w := mortal(t)
	l := w.life()
	r := l.asked(t)
	kill(t, l.worker(t, r.BindingID))
	p := of(t, ofQuestion, whileThinking)
	w.generation(t, r.BindingID, p.generation)
	l.keeps(t, p, r)
	before := l.question
	l.isAsked(t, r)
	if now := l.question; now.Revision != before.Revision || now.Interrupt.ID != before.Interrupt.ID {
		t.Errorf("it waits for %+v, and did for %+v", now, before)
	}
	l.decided(t, p)
}

// decided sees that an approval is carried out, once, on the generation that was
// promised.
func (l *life) decided(t *testing.T, p promise) {
	t.Helper()
	l.w.calledOnly(t, map[string]int{l.name: p.calls})
	if err := l.w.gate.Open(l.name); err != nil {
		t.Fatal(err)
	}
	run := l.approves(t)
	r := l.end(t, run)
	r.finished(t)
	if status := l.ended(t, r); status.Generation != p.generation || status.SideEffects != "known" {
		t.Errorf("%+v", status)
	}
	l.answered(t, run, p.generation)
	l.w.calledOnly(t, map[string]int{l.name: p.calls + 1})
}

// A worker that dies as it commits its question has asked where the head stands, and
// has not asked otherwise.
func TestAWorkerIsKilledAsItAsks(t *testing.T) {
	w := mortal(t)
	t.Run("between_snapshot_and_head", func(t *testing.T) {
		l, p := w.life(), of(t, ofQuestion, beforeHead)
		r := l.diesBeforeHead(t, l.asks(t, slow+l.call("")))
		l.keeps(t, p, r)
		if left := l.waits(t); left.Interrupt != nil {
			t.Errorf("it waits for %+v, which no head has", left)
		}
		l.goesOn(t, p.generation)
		w.calledOnly(t, map[string]int{l.name: p.calls})
	})
	t.Run("after_the_head_before_the_terminal", func(t *testing.T) {
		l, p := w.life(), of(t, ofQuestion, afterHead)
		r := l.diesAfterHead(t, func() apiclient.Started { return l.asks(t, slow+l.call("")) })
		l.keeps(t, p, r)
		l.isAsked(t, r)
		l.decided(t, p)
	})
}

func answerDeaths() []death {
	return []death{
		{"bound before the first event", resumedBound},
		{"before the side effect of a tool", resumedBeforeEffect},
		{"after the side effect of a tool", resumedAfterEffect},
	}
}

// A worker that dies at a step of the run that carries a decision out: what was
// decided is not asked again, and not done twice.
func TestAWorkerIsKilledInAResumedRun(t *testing.T) {
	w := mortal(t)
	calls := map[string]int{}
	for _, d := range answerDeaths() {
		t.Run(strings.ReplaceAll(d.step, " ", "_"), func(t *testing.T) {
			l := w.life()
			l.asked(t)
			r, p := d.play(t, l), of(t, ofAnswer, d.step)
			l.keeps(t, p, r)
			l.answered(t, r.Started, p.generation)
			w.calledOnly(t, map[string]int{l.name: p.calls})
			calls[l.name] = p.calls
		})
	}
	w.calledOnly(t, calls) // nor later, when everything else was over
}

func resumedBound(t *testing.T, l *life) turn {
	t.Helper()
	if err := l.w.gate.Open(l.name); err != nil {
		t.Fatal(err)
	}
	asked, err := l.client.Run(t.Context(), l.question.RunID)
	if err != nil {
		t.Fatal(err)
	}
	worker := l.worker(t, asked.BindingID)
	hold(t, worker)
	run := l.approves(t)
	kill(t, worker)
	return l.end(t, run)
}

func resumedBeforeEffect(t *testing.T, l *life) turn {
	t.Helper()
	if err := l.w.gate.Open(l.name); err != nil { // whoever calls gets through
		t.Fatal(err)
	}
	releaseState := l.w.holdProgram(t, "statefacade") // the run begins with what stands there
	run := l.approves(t)
	l.sees(t, run.RunID, "run.started")
	releaseBroker := l.w.holdProgram(t, "toolbroker")
	releaseState()
	kill(t, l.worker(t, run.BindingID))
	r := l.end(t, run)
	releaseBroker() // it gets the call, if there was one, only now
	return r
}

func resumedAfterEffect(t *testing.T, l *life) turn {
	t.Helper()
	run := l.approves(t)
	l.w.called(t, l.name)
	kill(t, l.worker(t, run.BindingID))
	r := l.end(t, run)
	if err := l.w.gate.Open(l.name); err != nil { // whoever calls again gets through
		t.Fatal(err)
	}
	return r
}
