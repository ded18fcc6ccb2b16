package process

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// warmed counts the warm instances that are ready, and all that are nobody's.
func (w *world) warmed() (ready, free int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.all {
		if in.freeLocked() {
			free++
			if in.ready {
				ready++
			}
		}
	}
	return ready, free
}

func (w *world) waitWarm(t *testing.T, n int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d are warm", n), func() bool { ready, free := w.warmed(); return ready == n && free == n })
}

func startWarm(t *testing.T, mode string, warm int, change ...func(*Config)) *world {
	t.Helper()
	w := start(t, mode, append(change, func(c *Config) { c.Profiles[0].Warm = warm })...)
	w.Warm()
	return w
}

// Two claims never adopt one instance, and one claim never two, however many are
// made at once (agent-sandbox 431, agent-sandbox 478).
func TestAHundredClaimsShareNothing(t *testing.T) {
	const claims, most = 100, 12
	w := startWarm(t, "patient", 4, func(c *Config) { c.MaxInstances = most })
	w.waitWarm(t, 4)
	var mu sync.Mutex
	byUID, pids := map[string]string{}, map[int]string{}
	var given, full atomic.Int64
	var wg sync.WaitGroup
	for i := range claims {
		wg.Go(func() {
			name := fmt.Sprintf("hc-%d", i)
			in, err := w.Claim(t.Context(), claim(name))
			if fault.Is(err, fault.SandboxCapacity) {
				full.Add(1)
				return
			}
			again, aerr := w.Claim(t.Context(), claim(name))
			if err != nil || aerr != nil || again != in || in.ClaimName != name {
				t.Errorf("%s: %+v, %v, and again %+v, %v", name, in, err, again, aerr)
				return
			}
			given.Add(1)
			mu.Lock()
			defer mu.Unlock()
			if other, twice := byUID[in.UID]; twice {
				t.Errorf("%s and %s have one instance", name, other)
			}
			if other, twice := pids[in.PID]; twice {
				t.Errorf("%s and %s have one process", name, other)
			}
			byUID[in.UID], pids[in.PID] = name, name
		})
	}
	wg.Wait()
	if given.Load() != most || full.Load() != claims-most {
		t.Errorf("%d claims were given an instance and %d were refused, of %d that may live", given.Load(), full.Load(), most)
	}
}

// A warm claim gets what runs already; what was used is not given again.
func TestAWarmClaimGetsARunningWorker(t *testing.T) {
	w := startWarm(t, "patient", 2)
	w.waitWarm(t, 2)
	running := map[int]bool{}
	w.mu.Lock()
	for _, in := range w.all {
		running[in.PID] = true
	}
	w.mu.Unlock()
	if list := w.list(t); len(list) != 0 {
		t.Errorf("warm instances are listed as somebody's: %v", list)
	}
	seen := map[string]bool{}
	in := w.claim(t, "hc-1")
	if !running[in.PID] || in.ClaimName != "hc-1" || in.ClaimUID == "" {
		t.Errorf("a warm claim got %+v, and %v ran", in, running)
	}
	seen[in.UID] = true
	w.waitWarm(t, 2) // another one has taken its place
	for i := range 3 {
		name := fmt.Sprintf("hc-%d", i+1)
		if err := w.Release(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if exists(in.PID) {
			t.Errorf("process %d goes on after its release", in.PID)
		}
		in = w.claim(t, fmt.Sprintf("hc-%d", i+2))
		if seen[in.UID] {
			t.Fatalf("instance %s was given twice", in.UID)
		}
		seen[in.UID] = true
	}
}

// An instance that is nobody's goes away without a word to those who claim, and
// another one takes its place.
func TestAWarmInstanceThatDiesIsReplaced(t *testing.T) {
	w := startWarm(t, "patient", 1)
	w.waitWarm(t, 1)
	dead := warmOf(w.Provider)
	if err := syscall.Kill(dead.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "another one is warm", func() bool { in := warmOf(w.Provider); return in != nil && in != dead })
	nothing(t, w.Exits())
	if left := w.ids.registered(); len(left) != 1 {
		t.Errorf("identities: %v", left)
	}
}

// One that waited too long is replaced; one that was claimed is not.
func TestIdleInstancesAreReplaced(t *testing.T) {
	w := startWarm(t, "patient", 1, func(c *Config) { c.MaxIdle = 400 * time.Millisecond })
	w.waitWarm(t, 1)
	first := warmOf(w.Provider)
	waittest.Until(t, "another one is warm", func() bool { in := warmOf(w.Provider); return in != nil && in != first })
	in := w.claim(t, "hc-1")
	second := w.ids.requests()
	waittest.Until(t, "others were replaced meanwhile", func() bool { return w.ids.requests() > second+2 })
	if !w.alive(t, in) {
		t.Error("a claimed instance was replaced")
	}
	nothing(t, w.Exits())
}

// What comes to nothing again and again is tried ever more rarely, and not given
// up.
func TestFailuresBackOff(t *testing.T) {
	w := start(t, "patient", func(c *Config) { c.Profiles[0].Warm = 1 })
	w.ids.hooks(func(context.Context, string) error { return errInjected }, nil)
	w.Warm()
	waittest.Until(t, "the next attempt is put off", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range w.warm {
			return p.failures >= 3 && time.Until(p.again) > firstBackOff // sooner or later, however slow this is
		}
		return false
	})
	w.ids.hooks(nil, nil)
	w.waitWarm(t, 1)
}

// An instance is ready when its worker says so, and not before; one that never
// does is ended.
func TestReadyIsAsked(t *testing.T) {
	var ready atomic.Bool
	w := startWarm(t, "patient", 1, func(c *Config) {
		c.Ready = func(context.Context, sandbox.Instance) error {
			if !ready.Load() {
				return errInjected
			}
			return nil
		}
	})
	waittest.Until(t, "one runs", func() bool { _, free := w.warmed(); return free == 1 })
	if n, _ := w.warmed(); n != 0 {
		t.Error("ready before its worker said so")
	}
	ready.Store(true)
	w.waitWarm(t, 1)
}

// Who claims goes before who might: a warm instance of another profile makes room.
func TestAClaimTakesTheRoomOfTheWarm(t *testing.T) {
	w := startWarm(t, "patient", 2, func(c *Config) {
		c.MaxInstances = 2
		other := c.Profiles[0]
		other.Name, other.Harness = "other", "acp"
		c.Profiles = append(c.Profiles, other)
	})
	w.waitWarm(t, 2)
	if err := w.Room(t.Context(), sandbox.Claim{Name: "hc-1", Profile: "other", Harness: "acp"}); err != nil {
		t.Errorf("the warm give way: %v", err)
	}
	in, err := w.Claim(t.Context(), sandbox.Claim{Name: "hc-1", Profile: "other", Harness: "acp"})
	if err != nil || !w.alive(t, in) {
		t.Fatalf("%+v, %v", in, err)
	}
	w.waitWarm(t, 1)
	if _, err := w.Claim(t.Context(), sandbox.Claim{Name: "hc-2", Profile: "other", Harness: "acp"}); err != nil {
		t.Error(err)
	}
	if _, err := w.Claim(t.Context(), sandbox.Claim{Name: "hc-3", Profile: "other", Harness: "acp"}); !fault.Is(err, fault.SandboxCapacity) {
		t.Errorf("one too many: %v", err)
	}
}

func TestCloseEndsTheWarm(t *testing.T) {
	var w *world
	var took time.Duration
	for try := 1; ; try++ {
		w = startWarm(t, "stubborn", 3)
		waittest.Until(t, "some run", func() bool { n, _ := w.warmed(); return n > 0 })
		began := time.Now()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		took = time.Since(began)
		w.empty(t)
		if took < stopGrace || try == 5 { // what is waited for takes so long each time, a busy machine does not
			break
		}
	}
	if took >= stopGrace {
		t.Errorf("close took %v: nobody waits for those that are nobody's", took)
	}
	w.Warm() // is too late
	if n := w.ids.requests(); n > 3+startsAtOnce() {
		t.Errorf("%d were made", n)
	}
}

// A harness has no more sandboxes than it may have, over all its profiles, and the
// warm ones give way to claims; another harness is not concerned.
func TestAHarnessHasItsShare(t *testing.T) {
	w := start(t, "patient", func(c *Config) {
		c.MaxInstances, c.MaxPerHarness = 6, map[string]int{"native": 2, "none": 0}
		c.Profiles = append(c.Profiles,
			Profile{Name: "large", Harness: "native", Limits: small()}.withDefaults(),
			Profile{Name: "other", Harness: "acp", Limits: small()}.withDefaults(),
			Profile{Name: "nothing", Harness: "none", Limits: small()}.withDefaults())
	})
	w.claim(t, "hc-1")
	if _, err := w.Claim(t.Context(), sandbox.Claim{Name: "hc-2", Profile: "large", Harness: "native"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []sandbox.Claim{{Name: "hc-3", Harness: "native"}, {Name: "hc-4", Profile: "large", Harness: "native"}, {Name: "hc-5", Harness: "none"}} {
		_, err := w.Claim(t.Context(), c)
		for _, err := range []error{w.Room(t.Context(), c), err} {
			if !fault.Is(err, fault.SandboxCapacity) || fault.From(err, "").RetryAfter() <= 0 {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
	if _, err := w.Claim(t.Context(), sandbox.Claim{Name: "hc-6", Harness: "acp"}); err != nil {
		t.Errorf("another harness: %v", err)
	}
	w.claim(t, "hc-1") // it is there already
	if err := w.Release(t.Context(), "hc-2"); err != nil {
		t.Fatal(err)
	}
	w.claim(t, "hc-7")
}

// Nothing is made of a profile that is switched off, warm or claimed, and a claim
// without a profile gets one that is not.
func TestAProfileThatIsSwitchedOff(t *testing.T) {
	w := start(t, "patient", func(c *Config) {
		off := Profile{Name: "off", Harness: "acp", Limits: small(), Warm: 1, Disabled: true}.withDefaults()
		second := Profile{Name: "second", Harness: "native", Limits: small()}.withDefaults()
		c.Profiles[0].Disabled = true
		c.Profiles = append(c.Profiles, off, second)
	})
	w.Warm()
	for _, c := range []sandbox.Claim{{Name: "hc-1", Profile: "small", Harness: "native"}, {Name: "hc-2", Profile: "off", Harness: "acp"}, {Name: "hc-3", Harness: "acp"}} {
		_, err := w.Claim(t.Context(), c)
		for _, err := range []error{w.Room(t.Context(), c), err} {
			if !fault.Is(err, fault.SandboxCapacity) || fault.From(err, "").RetryAfter() <= 0 {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
	if n := w.ids.requests(); n != 0 {
		t.Errorf("%d instances were made", n)
	}
	if _, err := w.Claim(t.Context(), sandbox.Claim{Name: "hc-4", Harness: "native"}); err != nil {
		t.Error(err)
	}
}
