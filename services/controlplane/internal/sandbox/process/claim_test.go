package process

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// Two claims never share an instance, and one claim never has two, however often
// and from wherever it is made (agent-sandbox 431, agent-sandbox 478).
func TestOneClaimOneProcess(t *testing.T) {
	w := start(t, "patient")
	names := []string{"hc-1", "hc-2", "hc-3"}
	got := make([]sandbox.Instance, 60)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			in, err := w.Claim(t.Context(), claim(names[i%len(names)]))
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			got[i] = in
		})
	}
	wg.Wait()
	byName, uids, claims, pids := map[string]sandbox.Instance{}, map[string]bool{}, map[string]bool{}, map[int]bool{}
	for i, in := range got {
		if in.ClaimName != names[i%len(names)] {
			t.Fatalf("claim %s got the instance of %s", names[i%len(names)], in.ClaimName)
		}
		if first, ok := byName[in.ClaimName]; ok && first != in {
			t.Fatalf("claim %s got %+v and %+v", in.ClaimName, first, in)
		}
		byName[in.ClaimName] = in
		uids[in.UID], claims[in.ClaimUID], pids[in.PID] = true, true, true
	}
	if len(byName) != 3 || len(uids) != 3 || len(claims) != 3 || len(pids) != 3 || w.ids.requests() != 3 {
		t.Errorf("3 claims became %d instances, %d claim uids, %d processes, %d identities", len(uids), len(claims), len(pids), w.ids.requests())
	}
	for _, in := range byName {
		if in.ID != identity.Sandbox(td, in.UID) || in.ImageDigest != w.digest || !exists(in.PID) || !listens(t, in.Address) {
			t.Errorf("not an instance: %+v", in)
		}
	}
	if list := w.list(t); len(list) != 3 {
		t.Errorf("list has %v", list)
	}
}

func TestTheClaimersContextDoesNotBoundTheInstance(t *testing.T) {
	w := start(t, "patient")
	begun, answer := make(chan struct{}), make(chan struct{})
	w.ids.onRegister = func(ctx context.Context, _ string) error {
		close(begun)
		select {
		case <-answer:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := w.Claim(ctx, claim("hc-1")); failed <- err }()
	<-begun
	cancel() // while it is being made
	if err := <-failed; !fault.Is(err, fault.Cancelled) {
		t.Fatalf("claim with a context that ended: %v", err)
	}
	close(answer)
	ctx, cancel = context.WithCancel(t.Context())
	in, err := w.Claim(ctx, claim("hc-1"))
	if err != nil {
		t.Fatal(err)
	}
	if n := w.ids.requests(); n != 1 {
		t.Errorf("%d instances were made for one claim", n)
	}
	cancel() // and after it was made
	if !w.alive(t, in) || w.claim(t, "hc-1") != in || !exists(in.PID) {
		t.Error("the instance ended with the context of its claim")
	}
}

func TestAClaimWhoseContextHasEndedMakesNothing(t *testing.T) {
	w := start(t, "patient")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Claim(ctx, claim("hc-1")); !fault.Is(err, fault.Cancelled) {
		t.Errorf("claim: %v", err)
	}
	if n := w.ids.requests(); n != 0 {
		t.Errorf("%d identities were asked for", n)
	}
}

func TestCapacity(t *testing.T) {
	w := start(t, "patient", func(c *Config) { c.MaxInstances = 2 })
	w.claim(t, "hc-1")
	w.claim(t, "hc-2")
	if _, err := w.Claim(t.Context(), claim("hc-3")); !fault.Is(err, fault.SandboxCapacity) {
		t.Errorf("one too many: %v", err)
	}
	w.claim(t, "hc-2") // one that stands takes no place
	if err := w.Room(t.Context(), claim("hc-3")); !fault.Is(err, fault.SandboxCapacity) {
		t.Errorf("room for one too many: %v", err)
	}
	if err := w.Room(t.Context(), claim("hc-2")); err != nil {
		t.Errorf("room for one that stands: %v", err)
	}
	if err := w.Release(t.Context(), "hc-1"); err != nil {
		t.Fatal(err)
	}
	if err := w.Room(t.Context(), claim("hc-3")); err != nil {
		t.Errorf("room where one was given back: %v", err)
	}
	w.claim(t, "hc-3")
}

func TestTheRegistrarsCapacityIsTheSandboxes(t *testing.T) {
	w := start(t, "patient")
	w.ids.onRegister = func(context.Context, string) error { return fault.New(fault.SandboxCapacity, "test") }
	if _, err := w.Claim(t.Context(), claim("hc-1")); !fault.Is(err, fault.SandboxCapacity) {
		t.Errorf("claim: %v", err)
	}
}

var errInjected = errors.New("injected")

// A start that fails leaves nothing, and the claim can be made again.
func TestAStartThatFailsLeavesNothing(t *testing.T) {
	for name, breakIt := range map[string]func(w *world) (mend func()){
		"no identity": func(w *world) func() {
			w.ids.onRegister = func(context.Context, string) error { return errInjected }
			return func() { w.ids.onRegister = nil }
		},
		"no binary": func(w *world) func() {
			was := w.cfg.WorkerPath
			w.cfg.WorkerPath = "/nonexistent/worker"
			return func() { w.cfg.WorkerPath = was }
		},
		"no service": func(w *world) func() {
			was := w.cfg.Sockets
			w.cfg.Sockets = "/nonexistent/svc"
			return func() { w.cfg.Sockets = was }
		},
		"no log folder": func(w *world) func() {
			was := w.cfg.LogDir
			w.cfg.LogDir = "/nonexistent/logs"
			return func() { w.cfg.LogDir = was }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, "patient")
			mend := breakIt(w)
			if _, err := w.Claim(t.Context(), claim("hc-1")); !fault.Is(err, fault.SandboxNotReady) {
				t.Fatalf("claim: %v", err)
			}
			w.empty(t)
			waittest.Until(t, "the claim is free", func() bool { return !w.held("hc-1") })
			nothing(t, w.Exits())
			mend()
			if in := w.claim(t, "hc-1"); !w.alive(t, in) {
				t.Error("not alive")
			}
		})
	}
}

// held reports whether a claim takes a place.
func (w *world) held(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claims[name] != nil
}

func TestAnInstanceThatHasEndedIsNotGiven(t *testing.T) {
	w := start(t, "exit")
	removing, goOn := make(chan struct{}), make(chan struct{})
	w.ids.onRemove = func(context.Context, string) error {
		close(removing)
		<-goOn
		w.ids.mu.Lock()
		defer w.ids.mu.Unlock()
		w.ids.onRemove = nil
		return nil
	}
	first, err := w.Claim(t.Context(), claim("hc-1"))
	if err != nil && !fault.Is(err, fault.SandboxNotReady) { // it may end before it is given
		t.Fatal(err)
	}
	<-removing
	if in, err := w.Claim(t.Context(), claim("hc-1")); !fault.Is(err, fault.SandboxNotReady) {
		t.Errorf("gave %+v, %v", in, err)
	}
	if w.alive(t, first) || len(w.list(t)) != 0 {
		t.Error("alive or listed after its end")
	}
	close(goOn)
	if e := <-w.Exits(); e.ClaimName != "hc-1" {
		t.Errorf("told of %+v", e)
	}
}

func TestAlive(t *testing.T) {
	w := start(t, "patient")
	in := w.claim(t, "hc-1")
	other := in
	other.UID = "another"
	if !w.alive(t, in) || w.alive(t, other) {
		t.Error("not this very instance")
	}
	if ok, err := w.Alive(t.Context(), "hc-2", in.UID); ok || err != nil {
		t.Errorf("another claim: %v, %v", ok, err)
	}
	if err := w.Release(t.Context(), "hc-1"); err != nil {
		t.Fatal(err)
	}
	if w.alive(t, in) {
		t.Error("alive after its release")
	}
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, change := range map[string]func(*Config){
		"no binary":        func(c *Config) { c.WorkerPath = "/nonexistent" },
		"binary is folder": func(c *Config) { c.WorkerPath = dir },
		"no launcher":      func(c *Config) { c.LauncherPath = "/nonexistent" },
		"no profiles":      func(c *Config) { c.Profiles = nil },
		"no runner":        func(c *Config) { c.Profiles[0].Program = &ProgramWorld{} },
		"a long folder":    func(c *Config) { c.Dir = dir + "/" + strings.Repeat("d", 100) },
		"a file as folder": func(c *Config) {
			c.Dir = dir + "/file"
			if err := os.WriteFile(c.Dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		cfg := config(shortDir(t), programs(t), "exit", &identities{})
		change(&cfg)
		if p, err := New(t.Context(), cfg); err == nil {
			t.Errorf("%s: accepted", name)
			_ = p.Close()
		}
	}
}

// What is missing is named with what to do about it, and everything else is there.
func TestWeaknessesAreNamed(t *testing.T) {
	w := start(t, "patient")
	if len(w.Weaknesses()) != len(w.without)+len(w.cgroups.Missing()) {
		t.Errorf("%q, and without %v and %v", w.Weaknesses(), w.without, w.cgroups.Missing())
	}
	for _, weak := range w.Weaknesses() {
		if !strings.Contains(weak, ". ") && !strings.Contains(weak, ": ") {
			t.Errorf("%q does not say what to do", weak)
		}
	}
	if os.Geteuid() == 0 {
		w.strong(t)
	}
}

// A claim that no profile can serve is a mistake of the configuration, and no
// other attempt mends it.
func TestAClaimNeedsItsProfile(t *testing.T) {
	w := start(t, "patient")
	for name, c := range map[string]sandbox.Claim{
		"another profile":                    {Name: "hc-1", Profile: "large", Harness: "native"},
		"another harness":                    {Name: "hc-2", Harness: "acp"},
		"another harness than the profile's": {Name: "hc-3", Profile: "small", Harness: "acp"},
	} {
		if _, err := w.Claim(t.Context(), c); !fault.Is(err, fault.WorkerMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.ids.requests(); n != 0 {
		t.Errorf("%d instances were made", n)
	}
	for _, c := range []sandbox.Claim{{Name: "hc-4", Harness: "native"}, {Name: "hc-5", Profile: "small", Harness: "native"}} {
		if _, err := w.Claim(t.Context(), c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestCloseEndsAll(t *testing.T) {
	w := start(t, "patient")
	a, b := w.claim(t, "hc-1"), w.claim(t, "hc-2")
	begun := make(chan struct{})
	w.ids.mu.Lock()
	w.ids.onRegister = func(ctx context.Context, _ string) error {
		close(begun)
		<-ctx.Done() // the registrar is deaf
		return ctx.Err()
	}
	w.ids.mu.Unlock()
	making := make(chan error, 1)
	go func() { _, err := w.Claim(t.Context(), claim("hc-3")); making <- err }()
	<-begun
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := w.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if exists(a.PID) || exists(b.PID) {
				t.Error("closed before its instances had ended")
			}
		})
	}
	wg.Wait()
	if err := <-making; !fault.Is(err, fault.SandboxNotReady) {
		t.Errorf("claim that was being made: %v", err)
	}
	w.empty(t)
	if e, open := <-w.Exits(); open {
		t.Errorf("told of %+v, which nobody else ended", e)
	}
	if _, err := w.Claim(t.Context(), claim("hc-4")); !fault.Is(err, fault.SandboxNotReady) {
		t.Errorf("claim after close: %v", err)
	}
	if err := w.Release(t.Context(), "hc-1"); err != nil {
		t.Errorf("release after close: %v", err)
	}
}

func TestCloseSaysWhatIsLeft(t *testing.T) {
	w := start(t, "patient")
	w.claim(t, "hc-1")
	w.ids.mu.Lock()
	w.ids.onRemove = func(context.Context, string) error { return errInjected }
	w.ids.mu.Unlock()
	began := time.Now()
	if err := w.Close(); !errors.Is(err, errInjected) {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took > patience {
		t.Errorf("close took %v", took)
	}
}
