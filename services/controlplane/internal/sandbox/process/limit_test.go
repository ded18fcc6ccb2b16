package process

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// exit waits for the one exit of an instance, of which at least the claim is known.
func (w *world) exit(t *testing.T, in sandbox.Instance) sandbox.Exit {
	t.Helper()
	select {
	case e := <-w.Exits():
		if e.ClaimName != in.ClaimName || in.UID != "" && e.UID != in.UID {
			t.Fatalf("told of %+v", e)
		}
		return e
	case <-time.After(patience):
		t.Fatalf("nobody was told; it said:\n%s", w.log(in.UID))
		return sandbox.Exit{}
	}
}

// What ended an instance is known, and its neighbour did not notice.
func TestTheLimitThatEndedAnInstanceIsNamed(t *testing.T) {
	for mode, want := range map[string]sandbox.Limit{
		"hog": sandbox.LimitMemory, "bomb": sandbox.LimitPIDs, "fill": sandbox.LimitStorage, "exit": "",
	} {
		t.Run(mode, func(t *testing.T) {
			w := start(t, mode)
			w.strong(t)
			in, err := w.Claim(t.Context(), claim("hc-1"))
			if err != nil { // it had ended by then, and may be cleaned up already
				in.ClaimName = "hc-1"
			}
			if mode == "fill" { // its workspace is watched by now; the provider may have connected itself
				listens(t, in.Address)
			}
			if e := w.exit(t, in); e.Limit != want {
				t.Errorf("ended by %q, want %q; it said:\n%s", e.Limit, want, tail(w.log(e.UID)))
			}
			if err := w.Release(t.Context(), "hc-1"); err != nil {
				t.Error(err)
			}
			w.empty(t)
			if left := w.groups(t); len(left) > 0 {
				t.Errorf("groups are left: %v", left)
			}
		})
	}
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// The time of an instance begins with its claim.
func TestTheLifetimeEndsAnInstance(t *testing.T) {
	w := start(t, "patient", func(c *Config) { c.Profiles[0].Limits.LifetimeSeconds = 1 })
	in := w.claim(t, "hc-1")
	began := time.Now()
	if e := w.exit(t, in); e.Limit != sandbox.LimitLifetime {
		t.Errorf("ended by %q", e.Limit)
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("ended after %v", took)
	}
}

// Somebody who kills a worker is no limit, whatever it had run into before.
func TestAKilledWorkerMetNoLimit(t *testing.T) {
	w := start(t, "patient")
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "up")
	if err := syscall.Kill(in.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := w.exit(t, in); e.Limit != "" {
		t.Errorf("ended by %q", e.Limit)
	}
}

// A worker that spins takes its own share and no more: another one is started and
// released beside it.
func TestASpinningWorkerIsHeld(t *testing.T) {
	w := start(t, "spin", func(c *Config) { c.Profiles[0].Limits.CPUs = 0.2 })
	w.strong(t)
	in := w.claim(t, "hc-1")
	w.said(t, in.UID, "spinning")
	w.mu.Lock()
	group := w.claims["hc-1"].groups.worker
	w.mu.Unlock()
	waittest.Until(t, "the spin is held back", func() bool {
		c, err := group.Counters()
		return err == nil && c.Throttled > 2
	})
	other := w.claim(t, "hc-2")
	w.said(t, other.UID, "spinning")
	if err := w.Release(t.Context(), "hc-2"); err != nil {
		t.Error(err)
	}
	if !w.alive(t, in) || strings.Contains(w.log(in.UID), "panic") {
		t.Error("the spin was ended")
	}
}
