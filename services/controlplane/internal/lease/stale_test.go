package lease_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

var otherTD = spiffeid.RequireTrustDomainFromString("other.test")

func (w *world) guard() *fence.Guard { return fence.NewGuard(w.writer, time.Now) }

// Nothing is claimed or replaced for a run that is not there any more.
func TestNothingHappensForARunThatIsOver(t *testing.T) {
	for name, c := range map[string]struct {
		over func(t *testing.T, w *world)
		want fault.Code
	}{
		"taken over": {func(t *testing.T, w *world) {
			t.Helper()
			r := w.record(t)
			must(t, w.writer.TakeOver(t.Context(), bindingID, r.Run.ID, owner, 0))
		}, fault.StaleLease},
		"another run is active": {func(t *testing.T, w *world) {
			t.Helper()
			r := w.record(t)
			w.end(t, lease.Request{Envelope: fence.Envelope{RunID: r.Run.ID}})
			w.run(t)
		}, fault.StaleLease},
		"cleared": {func(t *testing.T, w *world) {
			t.Helper()
			_, err := w.writer.Clear(t.Context(), bindingID, 0, 1, func(g uint32) string { return binding.ClaimName(bindingID, g) }, "default")
			must(t, err)
		}, fault.StaleLease},
		"cancelled": {func(t *testing.T, w *world) {
			t.Helper()
			r := w.record(t)
			g, err := w.guard().Admit(t.Context(), fence.Envelope{BindingID: bindingID, Generation: 1, RunID: r.Run.ID, Deadline: r.Run.Deadline})
			must(t, err)
			_, err = w.writer.SetEnd(t.Context(), g, binding.End{Kind: binding.EndCancelling, Reason: "client_request"})
			must(t, err)
		}, fault.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			req := w.run(t)
			c.over(t, w)
			before := w.record(t)
			w.refused(t, req, c.want)
			if len(w.provider.generations()) > 0 || w.record(t).Revision != before.Revision {
				t.Errorf("claims at %v, revision %d to %d", w.provider.generations(), before.Revision, w.record(t).Revision)
			}
		})
	}
}

func TestAnUnknownBindingIsStale(t *testing.T) {
	w := newWorld(t)
	req := w.run(t)
	req.Envelope.BindingID = "hs_unknown"
	w.refused(t, req, fault.StaleLease)
}

// A claim was adopted and the write that says so failed: the next attempt adopts
// the same one (agent-sandbox 478).
func TestAnAdoptionWhoseRecordFailedIsAdoptedAgain(t *testing.T) {
	w := newWorld(t)
	req := w.run(t)
	w.store.RefuseWrites(errInjected)
	w.refused(t, req, fault.DependencyUnavailable)
	w.store.RefuseWrites(nil)
	if r := w.record(t); r.Lease.State != binding.LeaseClaiming || r.Generation != 1 || len(w.provider.released) > 0 {
		t.Fatalf("lease %+v, released %v", r.Lease, w.provider.released)
	}
	h := w.acquire(t, req)
	if w.provider.Made() != 1 || h.Record.Lease.InstanceUID != "instance-1" || h.Grant.Envelope().Generation != 1 {
		t.Errorf("%d instances, lease %+v", w.provider.Made(), h.Record.Lease)
	}
}

// The reply of a write was lost: what was written stands and is found.
func TestALostReplyChangesNothing(t *testing.T) {
	w := newWorld(t)
	req := w.run(t)
	n := 0
	w.store.AfterWrite(func(err error) error {
		if n++; err == nil && n%2 == 1 {
			return errInjected
		}
		return err
	})
	h := w.acquire(t, req)
	w.store.AfterWrite(nil)
	if r := w.record(t); w.provider.Made() != 1 || r.Generation != 1 || r.Lease.State != binding.LeaseBound || r.Lease.BoundBy != h.Token.ID {
		t.Errorf("%d instances, lease %+v", w.provider.Made(), r.Lease)
	}
}

// A claim that comes so late that its lease was replaced, concluded and dropped
// is nobody's, and ended by who made it.
func TestAClaimThatNoRecordKnowsIsEnded(t *testing.T) {
	w := newWorld(t)
	req := w.run(t)
	late := binding.ClaimName(bindingID, 1)
	w.provider.before = func(ctx context.Context, n int, _ sandbox.Claim) error {
		if n > 1 {
			return nil
		}
		_, err := w.replace(ctx)
		return errors.Join(err, w.provider.Provider.Release(ctx, late), w.writer.DropLease(ctx, bindingID, late))
	}
	_, err := w.Acquire(t.Context(), req)
	if !fault.Is(err, fault.StaleLease) {
		t.Errorf("acquire: %v", err)
	}
	if !slices.Equal(w.provider.released, []string{late}) {
		t.Errorf("released %v, want %s", w.provider.released, late)
	}
	if left, err := w.provider.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	if r := w.record(t); r.Generation != 2 || r.Run == nil || r.Lease.InstanceUID != "" {
		t.Errorf("record: %+v", r)
	}
	if len(w.minter.asked) > 0 || len(w.workers.binds()) > 0 {
		t.Error("a sandbox of no generation was minted for or bound")
	}
}

// One that is only still ending is the concluder's.
func TestAClaimThatIsEndingIsLeftToItsConcluder(t *testing.T) {
	w := newWorld(t)
	req := w.run(t)
	w.provider.before = func(ctx context.Context, n int, _ sandbox.Claim) error {
		if n > 1 {
			return nil
		}
		_, err := w.replace(ctx)
		return err
	}
	w.refused(t, req, fault.StaleLease)
	if len(w.provider.released) > 0 {
		t.Errorf("released %v", w.provider.released)
	}
}

// The fence between bind and the write that records it: a worker that was bound
// in a generation that is over is not held.
func TestReplacedWhileItIsBound(t *testing.T) {
	w := newWorld(t)
	req := w.run(t)
	w.workers.bind = func(ctx context.Context, _ string) error {
		_, err := w.replace(ctx)
		return err
	}
	w.refused(t, req, fault.StaleLease)
	if r := w.record(t); r.Generation != 2 || r.Lease.BoundBy != "" || r.Lease.State != binding.LeaseClaiming {
		t.Errorf("record: generation %d, lease %+v", r.Generation, r.Lease)
	}
}
