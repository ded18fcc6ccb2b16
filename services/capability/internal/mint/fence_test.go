package mint_test

import (
	"fmt"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/capability/internal/mint"
)

func sprint(verb string, v any) string { return fmt.Sprintf(verb, v) }

func claimName(g uint32) string { return fmt.Sprint("claim-", g) }

// replace makes the next generation, as a control plane does that saw the worker
// die. The run did nothing yet, so it is carried over: same run, next lease.
func (w *world) replace(t *testing.T) {
	t.Helper()
	if _, err := w.writer.Replace(t.Context(), bindingID, 1, 2, claimName, "default"); err != nil {
		t.Fatalf("replace: %v", err)
	}
	if _, err := w.writer.UpdateLease(t.Context(), bindingID, 1, 3, func(l *binding.Lease) {
		l.InstanceUID, l.State = instance, binding.LeaseReady // even the same instance
	}); err != nil {
		t.Fatalf("lease: %v", err)
	}
}

func TestALeaseThatIsReplacedBetweenAdmissionAndMint(t *testing.T) {
	for name, moved := range map[string]func(*testing.T, *world){
		"replaced": func(t *testing.T, w *world) { t.Helper(); w.replace(t) },
		"cleared": func(t *testing.T, w *world) {
			t.Helper()
			if _, err := w.writer.Clear(t.Context(), bindingID, 1, 2, claimName, "default"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			run, lease := w.grant(t, nil), w.grant(t, noRun)
			moved(t, w)
			w.refused(t, run, request(), fault.StaleLease)
			w.refused(t, lease, mint.Request{Subject: subject, Scopes: allScopes()[:1]}, fault.StaleLease)
		})
	}
}

func TestARunThatIsTakenOverBetweenAdmissionAndMint(t *testing.T) {
	w := newWorld(t, nil)
	g := w.grant(t, nil)
	if err := w.writer.TakeOver(t.Context(), bindingID, runID, owner, 0); err != nil {
		t.Fatal(err)
	}
	w.refused(t, g, request(), fault.StaleLease)
}

// Between the last read and the answer nothing can be locked. What comes out
// then is signed and verifies, and every receiver's fence refuses it.
func TestATokenOfAReplacedGenerationIsWorthNothing(t *testing.T) {
	w := newWorld(t, nil)
	g := w.grant(t, nil)
	w.store.after = func() { w.store.after = nil; w.replace(t) }
	tokens, err := w.minter.Mint(t.Context(), g, request())
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range tokens {
		c, err := w.verify(t, tok)
		if err != nil {
			t.Fatalf("%s: %v", tok.Audience, err)
		}
		// With the envelope that the token is for: the committed generation is
		// another one.
		if err := c.Matches(envelope(w)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.guard.Admit(t.Context(), envelope(w)); !fault.Is(err, fault.StaleLease) {
			t.Errorf("%s: the fence says %v, want stale_lease", tok.Audience, err)
		}
		// With the envelope that is committed: the token is for another one.
		committed := envelope(w)
		committed.Generation++
		if _, err := w.guard.Admit(t.Context(), committed); err != nil {
			t.Fatalf("the run was not carried over: %v", err)
		}
		if err := c.Matches(committed); !fault.Is(err, fault.CapabilityScope) {
			t.Errorf("%s: the token matches generation 3: %v", tok.Audience, err)
		}
	}
	if len(tokens) != len(capability.Audiences()) {
		t.Errorf("%d audiences were tried", len(tokens))
	}
}
