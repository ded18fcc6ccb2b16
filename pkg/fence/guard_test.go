package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/fence/fencetest"
)

func clock() time.Time { return now }

func TestAdmit(t *testing.T) {
	t.Parallel()
	for _, c := range cases() {
		s, e := committed(), envelope()
		c.change(&s, &e)
		g := fence.NewGuard(fencetest.NewReader(s), clock)
		for _, a := range []struct {
			admit func(context.Context, fence.Envelope) (fence.Grant, error)
			want  fault.Code
		}{{g.Admit, c.run}, {g.AdmitLease, c.lease}} {
			grant, err := a.admit(t.Context(), e)
			if got := fault.CodeOf(err); got != a.want {
				t.Errorf("%s: %q, want %q", c.what, got, a.want)
			}
			if verr := grant.Validate(); (verr == nil) != (err == nil) {
				t.Errorf("%s: the grant is %v beside %v", c.what, verr, err)
			}
			if err == nil && grant.Committed() != s {
				t.Errorf("%s: the grant says %+v", c.what, grant.Committed())
			}
		}
	}
}

func TestZeroGrantIsRefused(t *testing.T) {
	t.Parallel()
	if err := (fence.Grant{}).Validate(); !fault.Is(err, fault.Internal) {
		t.Errorf("%v", err)
	}
	if err := new(fence.Grant).Validate(); err == nil {
		t.Error("a new grant is valid")
	}
}

func TestGrantEndsWithTheRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ envelope, run, want time.Duration }{
		{time.Minute, time.Hour, time.Minute},
		{time.Hour, time.Minute, time.Minute},
		{time.Minute, time.Minute, time.Minute},
	} {
		s, e := committed(), envelope()
		s.RunDeadline, e.Deadline = now.Add(c.run), now.Add(c.envelope)
		g, err := fence.NewGuard(fencetest.NewReader(s), clock).Admit(t.Context(), e)
		if err != nil || !g.Envelope().Deadline.Equal(now.Add(c.want)) {
			t.Errorf("%+v: %v, %v", c, g.Envelope().Deadline, err)
		}
		e.Deadline = now.Add(c.want)
		if got := g.Envelope(); got.BindingID != e.BindingID || got.Epoch != e.Epoch || got.Generation != e.Generation || got.RunID != e.RunID || got.IdempotencyKey != e.IdempotencyKey {
			t.Errorf("envelope %+v", got)
		}
	}
}

func TestGuardErrors(t *testing.T) {
	t.Parallel()
	r := fencetest.NewReader(committed())
	g := fence.NewGuard(r, clock)
	unknown := envelope()
	unknown.BindingID = "hs_unknown"
	if _, err := g.Admit(t.Context(), unknown); !fault.Is(err, fault.StaleLease) {
		t.Errorf("unknown binding: %v", err)
	}
	down := errors.New("no connection")
	r.Fail(down)
	if _, err := g.Admit(t.Context(), envelope()); !fault.Is(err, fault.DependencyUnavailable) || !errors.Is(err, down) {
		t.Errorf("store away: %v", err)
	}
	r.Fail(fmt.Errorf("read: %w", fence.ErrUnknownBinding))
	if _, err := g.AdmitLease(t.Context(), envelope()); !fault.Is(err, fault.StaleLease) {
		t.Errorf("wrapped unknown binding: %v", err)
	}
	r.Fail(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Admit(ctx, envelope()); !fault.Is(err, fault.Cancelled) {
		t.Errorf("cancelled: %v", err)
	}
	ctx, cancel = context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if _, err := g.Admit(ctx, envelope()); !fault.Is(err, fault.DeadlineExceeded) {
		t.Errorf("late: %v", err)
	}
}

// TestReplacedUnderTheGuard: a grant says what was true when it was made; the
// next request sees what is true now.
func TestReplacedUnderTheGuard(t *testing.T) {
	t.Parallel()
	r := fencetest.NewReader(committed())
	g := fence.NewGuard(r, clock)
	if _, err := g.Admit(t.Context(), envelope()); err != nil {
		t.Fatal(err)
	}
	next := committed()
	next.Generation++
	r.Set(next)
	if _, err := g.Admit(t.Context(), envelope()); !fault.Is(err, fault.StaleLease) {
		t.Errorf("%v", err)
	}
}

func TestFencetest(t *testing.T) {
	t.Parallel()
	s := fencetest.State()
	if g := fencetest.Grant(t, s, "k"); g.Validate() != nil || g.Committed() != s || g.Envelope().IdempotencyKey != "k" || g.Envelope().RunID != s.RunID {
		t.Errorf("%+v", g)
	}
}

// BenchmarkGuardAdmit is the fence without its store.
func BenchmarkGuardAdmit(b *testing.B) {
	s := committed()
	g := fence.NewGuard(fencetest.NewReader(s), clock)
	e := envelope()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Admit(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGuardRefuse is what a stale request costs.
func BenchmarkGuardRefuse(b *testing.B) {
	g := fence.NewGuard(fencetest.NewReader(committed()), clock)
	e := envelope()
	e.Generation--
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Admit(b.Context(), e); err == nil {
			b.Fatal("admitted")
		}
	}
}
