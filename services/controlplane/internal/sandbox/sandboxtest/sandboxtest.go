// Package sandboxtest is what every sandbox provider has to pass.
package sandboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// patience bounds a wait for something that must come.
const patience = 30 * time.Second

// World is a provider of a test, and what is around it.
type World struct {
	Provider sandbox.Provider
	// Claim has the profile and the harness that there are.
	Claim sandbox.Claim
	// Kill ends an instance as something outside would.
	Kill func(t *testing.T, in sandbox.Instance)
}

// Run runs the suite. open makes a World, which the test that asks for it ends.
func Run(t *testing.T, open func(t *testing.T) World) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, World){
		"the same claim is the same instance": same,
		"an instance is nobody else's":        exclusive,
		"what is released is gone":            released,
		"what ends is told once":              ended,
		"what there is not is refused":        refused,
		"time that is over":                   late,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func (w World) claim(t *testing.T, name string) sandbox.Instance {
	t.Helper()
	c := w.Claim
	c.Name = name
	in, err := w.Provider.Claim(t.Context(), c)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	if in.ClaimName != name || in.ClaimUID == "" || in.UID == "" || in.Address == "" || in.ImageDigest == "" {
		t.Fatalf("the instance is not whole: %+v", in)
	}
	if uid, ok := identity.InstanceUID(in.ID); !ok || uid != in.UID {
		t.Fatalf("the identity is not the instance's: %+v", in)
	}
	return in
}

func (w World) wantAlive(t *testing.T, claimName, uid string, want bool) {
	t.Helper()
	if got, err := w.Provider.Alive(t.Context(), claimName, uid); err != nil || got != want {
		t.Errorf("alive: %v, %v; want %v", got, err, want)
	}
}

func (w World) list(t *testing.T) map[string]sandbox.Instance {
	t.Helper()
	list, err := w.Provider.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]sandbox.Instance{}
	for _, in := range list {
		out[in.ClaimName] = in
	}
	return out
}

func same(t *testing.T, w World) {
	t.Helper()
	first := w.claim(t, "hc-1")
	if again := w.claim(t, "hc-1"); again != first {
		t.Errorf("%+v, and then %+v", first, again)
	}
	w.wantAlive(t, "hc-1", first.UID, true)
	w.wantAlive(t, "hc-1", "another", false)
	w.wantAlive(t, "hc-2", first.UID, false)
	if list := w.list(t); len(list) != 1 || list["hc-1"].UID != first.UID {
		t.Errorf("listed: %+v", list)
	}
}

func exclusive(t *testing.T, w World) {
	t.Helper()
	a, b := w.claim(t, "hc-1"), w.claim(t, "hc-2")
	if a.UID == b.UID || a.ClaimUID == b.ClaimUID || a.ID == b.ID {
		t.Errorf("%+v and %+v", a, b)
	}
	w.wantAlive(t, "hc-1", b.UID, false)
	if err := w.Provider.Release(t.Context(), "hc-1"); err != nil {
		t.Fatal(err)
	}
	w.wantAlive(t, "hc-2", b.UID, true)
}

func released(t *testing.T, w World) {
	t.Helper()
	in := w.claim(t, "hc-1")
	for range 2 {
		if err := w.Provider.Release(t.Context(), "hc-1"); err != nil {
			t.Fatal(err)
		}
		w.wantAlive(t, "hc-1", in.UID, false)
	}
	if err := w.Provider.Release(t.Context(), "hc-9"); err != nil {
		t.Errorf("a claim that there never was: %v", err)
	}
	if list := w.list(t); len(list) != 0 {
		t.Errorf("listed: %+v", list)
	}
	if again := w.claim(t, "hc-1"); again.UID == in.UID || again.ClaimUID == in.ClaimUID {
		t.Errorf("given again: %+v", again)
	}
	select {
	case exit := <-w.Provider.Exits():
		t.Errorf("a release was told: %+v", exit)
	default:
	}
}

func ended(t *testing.T, w World) {
	t.Helper()
	in := w.claim(t, "hc-1")
	w.Kill(t, in)
	select {
	case exit := <-w.Provider.Exits():
		if exit != (sandbox.Exit{ClaimName: "hc-1", UID: in.UID}) {
			t.Errorf("%+v", exit)
		}
	case <-time.After(patience):
		t.Fatal("nothing was told")
	}
	w.wantAlive(t, "hc-1", in.UID, false)
	if err := w.Provider.Release(t.Context(), "hc-1"); err != nil {
		t.Errorf("release of what has ended: %v", err)
	}
	select {
	case exit, open := <-w.Provider.Exits():
		t.Errorf("told again: %+v, %v", exit, open)
	default:
	}
}

func refused(t *testing.T, w World) {
	t.Helper()
	for name, c := range map[string]sandbox.Claim{
		"another profile": {Name: "hc-1", Profile: "there-is-no-such", Harness: w.Claim.Harness},
		"another harness": {Name: "hc-1", Profile: w.Claim.Profile, Harness: "there_is_no_such"},
	} {
		if _, err := w.Provider.Claim(t.Context(), c); fault.CodeOf(err) != fault.WorkerMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list := w.list(t); len(list) != 0 {
		t.Errorf("listed: %+v", list)
	}
}

func late(t *testing.T, w World) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := w.Claim
	c.Name = "hc-1"
	if _, err := w.Provider.Claim(ctx, c); !errors.Is(err, context.Canceled) && fault.CodeOf(err) != fault.Cancelled {
		t.Errorf("%v", err)
	}
}
