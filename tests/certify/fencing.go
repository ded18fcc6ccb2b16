package certify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
)

// staleLease is the code of the one refusal that fencing gives.
const staleLease = "stale_lease"

// fencing makes a stale worker: an impostor that has the user, the identity, the sockets
// and the capabilities of a worker in the middle of a run. What it asks for is granted;
// then the worker dies and its lease is replaced, and the impostor asks again.
func fencing(ctx context.Context, w *world, l *ledger) {
	const stale = "what a stale worker asks of any broker is refused as stale_lease, and was granted before"
	const inert = "a stale worker adds no event, no state and no tool call"
	if os.Geteuid() != 0 {
		l.notRun(stale, "capabilities are taken from a worker's memory: run it as root")
	} else {
		seen, err := w.outlive(ctx)
		if err == nil {
			err = judgeFenced(seen)
		}
		l.figure("stale_calls", float64(len(seen.stale)))
		l.holds(stale, err)
		if err == nil {
			l.holds(inert, judgeInert(seen.before, seen.after))
		}
	}
	const resume = "a decision on an interrupt of an earlier epoch is refused, and one that was decided is not decided again"
	if has, why := w.target.has("interrupt.tool_approval"); !has {
		l.notApplicable(resume, why)
		return
	}
	l.holds(resume, w.staleResume(ctx))
}

// outlived is what a stale worker saw.
type outlived struct {
	calls         []impostor.Call
	lawful, stale []string
	before, after record
}

// record is what must not change by a stale call.
type record struct {
	Events   int
	Terminal string
	Revision uint64
	// Calls that the ToolBroker's audit tells of, over all bindings.
	Calls int
}

// held are the calls of an impostor, each with the capability that it takes.
func (t target) held(c impostor.Captured) []impostor.Call {
	var calls []impostor.Call
	for _, o := range []struct {
		what     string
		audience capability.Audience
	}{
		{"statefacade load", capability.ThreadState},
		{"statefacade write", capability.ThreadState},
		{"statefacade remember", capability.Memory},
		{"model", capability.ModelProxy},
		{"toolbroker call", capability.ToolBroker},
	} {
		calls = append(calls, impostor.Call{What: o.what, Token: c.Tokens[o.audience], Envelope: c.Envelope, Adapter: impostor.Adapter{Harness: t.HarnessID, Version: t.AdapterVersion}})
	}
	return calls
}

func (w *world) outlive(ctx context.Context) (seen outlived, err error) {
	c := w.talk(plain)
	run, err := c.begin(ctx, say("at work"), busy())
	if err != nil {
		return seen, err
	}
	defer func() {
		if err != nil { // the run may still be there
			_ = w.cancel(ctx, run.RunID)
		}
	}()
	if err := w.speaks(ctx, 0, run.RunID); err != nil {
		return seen, err
	}
	s, b, err := w.seat(ctx, run.BindingID)
	if err != nil {
		return seen, err
	}
	worker, err := procs.Read(s.PID)
	if err != nil {
		return seen, err
	}
	captured, err := impostor.Capture(b, worker, run)
	if err != nil {
		return seen, err
	}
	i, err := captured.Start(ctx, captured.User, nil)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, i.Close()) }()
	seen.calls = w.target.held(captured)
	if seen.lawful, err = i.Make(seen.calls...); err != nil {
		return seen, err
	}
	if err := w.replace(ctx, run, b.Generation, worker); err != nil {
		return seen, err
	}
	if seen.before, err = w.recordOf(ctx, run); err != nil {
		return seen, err
	}
	if seen.stale, err = i.Make(seen.calls...); err != nil {
		return seen, err
	}
	if seen.after, err = w.recordOf(ctx, run); err != nil {
		return seen, err
	}
	return seen, nil
}

// replace kills a worker and waits until its lease is the next one and all of the old is
// concluded.
func (w *world) replace(ctx context.Context, run apiclient.Started, generation uint32, worker procs.Process) error {
	if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
		return err
	}
	if _, err := w.end(ctx, 0, run); err != nil {
		return err
	}
	return w.awaitGeneration(ctx, run, generation)
}

func (w *world) recordOf(ctx context.Context, run apiclient.Started) (record, error) {
	r, err := w.end(ctx, 0, run)
	if err != nil {
		return record{}, err
	}
	b, err := w.operator.Binding(ctx, run.BindingID)
	if err != nil {
		return record{}, err
	}
	audit, err := os.ReadFile(filepath.Join(w.Data, "audit", "toolbroker.jsonl"))
	return record{len(r.events), r.ending(), b.DurableRevision, bytes.Count(audit, []byte("\n"))}, err
}

// judgeFenced sees that every call was granted while the lease was current, and is
// refused as stale_lease and by nothing else afterwards.
func judgeFenced(seen outlived) error {
	if len(seen.calls) == 0 || len(seen.lawful) != len(seen.calls) || len(seen.stale) != len(seen.calls) {
		return fmt.Errorf("%d calls, %d answers before and %d after the replacement: nothing is shown", len(seen.calls), len(seen.lawful), len(seen.stale))
	}
	var errs []error
	for i, c := range seen.calls {
		if seen.lawful[i] != impostor.Granted {
			errs = append(errs, fmt.Errorf("%s was not even granted to the current worker, but %s: a refusal means nothing", c.What, seen.lawful[i]))
		}
		if seen.stale[i] != staleLease {
			errs = append(errs, fmt.Errorf("%s of the stale worker came to %s, want %s", c.What, seen.stale[i], staleLease))
		}
	}
	return errors.Join(errs...)
}

func judgeInert(before, after record) error {
	if before != after || before.Events == 0 || before.Calls == 0 {
		return fmt.Errorf("the run, its thread and the audit were %+v and are %+v", before, after)
	}
	return nil
}

// decisions are what came of deciding on an interrupt, as HTTP statuses.
type decisions struct{ first, again, other, stale int }

// staleResume decides on an interrupt in every way that is too late.
func (w *world) staleResume(ctx context.Context) error {
	var d decisions
	c := w.talk(careful)
	run, pending, err := w.interrupted(ctx, c)
	if err != nil {
		return err
	}
	if d.first, err = w.decide(ctx, run, pending, "approve"); err != nil {
		return err
	}
	if d.again, err = w.decide(ctx, run, pending, "approve"); err != nil {
		return err
	}
	if d.other, err = w.decide(ctx, run, pending, "reject"); err != nil {
		return err
	}
	c = w.talk(careful)
	if run, pending, err = w.interrupted(ctx, c); err != nil {
		return err
	}
	if err := w.clear(ctx, c, run.Epoch); err != nil {
		return err
	}
	if d.stale, err = w.decide(ctx, run, pending, "approve"); err != nil {
		return err
	}
	return judgeDecisions(d)
}

func judgeDecisions(d decisions) error {
	ok := []int{http.StatusOK, http.StatusAccepted, http.StatusCreated}
	gone := []int{http.StatusConflict, http.StatusNotFound}
	switch {
	case !slices.Contains(ok, d.first):
		return fmt.Errorf("the decision itself was answered %d", d.first)
	case !slices.Contains(ok, d.again):
		return fmt.Errorf("the same decision again was answered %d", d.again)
	case d.other != http.StatusConflict:
		return fmt.Errorf("another decision was answered %d, want 409", d.other)
	case !slices.Contains(gone, d.stale):
		return fmt.Errorf("a decision of an epoch that was cleared was answered %d, want 409 or 404", d.stale)
	}
	return nil
}

// interrupted brings a conversation to its question.
func (w *world) interrupted(ctx context.Context, c *talk) (apiclient.Started, apiclient.InterruptState, error) {
	run, err := c.begin(ctx, ask())
	if err != nil {
		return run, apiclient.InterruptState{}, err
	}
	r, err := w.end(ctx, 0, run)
	if err != nil {
		return run, apiclient.InterruptState{}, err
	}
	if r.ending() != "run.interrupted" {
		return run, apiclient.InterruptState{}, fmt.Errorf("a call that needs an approval ended the run as %s", r.ending())
	}
	state, err := w.users[0].InterruptState(ctx, c.conversation, c.agent)
	if err == nil && state.Interrupt == nil {
		err = errors.New("nothing is pending after run.interrupted")
	}
	return run, state, err
}

func (w *world) decide(ctx context.Context, run apiclient.Started, s apiclient.InterruptState, decision string) (int, error) {
	resume := apiclient.Resume{InterruptID: s.Interrupt.InterruptID, Revision: s.Revision}
	for _, a := range s.Interrupt.ToolApprovals {
		resume.Tools = append(resume.Tools, apiclient.ToolDecision{ToolCallID: a.ToolCallID, Decision: decision})
	}
	raw, err := json.Marshal(resume)
	if err != nil {
		return 0, err
	}
	a, err := w.users[0].Do(ctx, http.MethodPost, "/api/v1/runs/"+run.RunID+":resume", "application/json", strings.NewReader(string(raw)))
	return a.Status, err
}
