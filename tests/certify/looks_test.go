package certify

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/forbidden"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/internal/secrets"
)

const (
	heldStatus = "Name:\tworker\nUid:\t70001\t70001\t70001\t70001\nGid:\t70001\t70001\t70001\t70001\nCapInh:\t0000000000000000\n" +
		"CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	noCores = "Limit   Soft Limit  Hard Limit  Units\nMax core file size        1                    1                    bytes\n"
)

func threeWorlds() (all []worldOf) {
	for _, n := range []string{"0", "1", "2"} {
		all = append(all, worldOf{"mnt": "m" + n, "pid": "p" + n, "net": "n" + n, "ipc": "i" + n, "uts": "u" + n, "user": "7000" + n})
	}
	return all
}

func claimedBy(change func(*claimed)) claimed {
	c := claimed{Ready: []int{11, 12, 13}, Seats: seats(), Released: []bool{true, true}, Reused: []bool{false, false}}
	if change != nil {
		change(&c)
	}
	return c
}

func succeeded() succession {
	s := succession{Before: seats()[0], After: seats()[1], Ending: "run.error sandbox_evicted", Want: "run.error sandbox_evicted", Knows: true, Should: true}
	s.After.Binding, s.After.Generation = s.Before.Binding, 2
	return s
}

// more are the violations of what is looked at from the host.
func more(t *testing.T, add func(int, string, error)) {
	t.Helper()
	granted, scope, invalid := []string{impostor.Granted}, []string{"capability_scope"}, []string{"capability_invalid"}
	for kind := range threeWorlds()[0] {
		shared := threeWorlds()
		shared[2][kind] = shared[1][kind]
		add(5, "two workers that share their "+kind, judgeWorlds(shared))
		shared = threeWorlds()
		shared[1][kind] = shared[0][kind]
		add(5, "a worker that has the host's "+kind, judgeWorlds(shared))
	}
	add(5, "one worker", judgeWorlds(threeWorlds()[:2]))
	control, nothing := sight{"own", "it", true, true}, sight{"other", "it", false, false}
	add(5, "a canary that crossed", judgeSights([]sight{control, {"other", "it", true, false}}))
	add(5, "a look that finds nothing anywhere", judgeSights([]sight{{"own", "it", false, true}, nothing}))
	add(5, "a look without a control", judgeSights([]sight{nothing}))
	add(5, "a control without a look", judgeSights([]sight{control}))
	add(5, "the right of one binding for the other's run", judgeBorrowed(granted, invalid, granted))
	add(5, "a capability that was stolen", judgeBorrowed(scope, granted, granted))
	add(5, "a refusal of everything", judgeBorrowed(scope, invalid, invalid))
	add(5, "no call at all", judgeBorrowed(nil, nil, nil))
	add(6, "a core", judgeLimits(strings.Replace(noCores, "1    ", "unlimited", 1)))
	add(6, "limits that nobody knows", judgeLimits(""))
	add(8, "a run that outlives its deadline", judgeEnds([]string{"run.finished"}, "run.cancelled deadline"))
	add(7, "a target that was reached", judgeUnreached([]attempt{{What: "x"}}))
	add(7, "a target that heard of it", judgeUnreached([]attempt{{What: "x", Inside: errors.New("reset"), Came: 1}}))
	add(7, "a target that nobody can reach", judgeUnreached([]attempt{{What: "x", Outside: errors.New("no"), Inside: errors.New("no")}}))
	add(7, "no attempt", judgeUnreached(nil))
	for what, change := range map[string]func(*claimed){
		"one worker for two claims":         func(c *claimed) { c.Seats[1] = c.Seats[0] },
		"a worker that was not ready":       func(c *claimed) { c.Ready = []int{11, 13} },
		"a worker that outlives its lease":  func(c *claimed) { c.Released[1] = false },
		"a worker that is given away again": func(c *claimed) { c.Reused[0] = true },
		"no claim":                          func(c *claimed) { *c = claimed{} },
	} {
		add(10, what, judgeClaims(claimedBy(change)))
	}
	for what, change := range map[string]func(*succession){
		"the sandbox of before is met again": func(s *succession) { s.After = s.Before; s.After.Generation = 2 },
		"the generation of before":           func(s *succession) { s.After.Generation = 1 },
		"an orphan":                          func(s *succession) { s.OldAlive = true },
		"a run that is called finished":      func(s *succession) { s.Ending = "run.finished" },
		"a conversation that forgot":         func(s *succession) { s.Knows = false },
		"a clear that changes no epoch":      func(s *succession) { s.Clears = 1 },
		"another binding":                    func(s *succession) { s.After.Binding = "hs_c" },
	} {
		s := succeeded()
		change(&s)
		add(3, what, judgeSuccession(s))
	}
	add(3, "a clear that remembers", judgeSuccession(func() succession { s := succeeded(); s.Should = false; return s }()))
	add(13, "a lost turn that was acknowledged", judgeCommits([]commit{{"run.finished", false, true}}))
	add(13, "an earlier turn that was lost", judgeCommits([]commit{{"run.finished", true, false}}))
	add(13, "a turn that failed and was kept", judgeCommits([]commit{{"run.error persistence_failed", true, true}}))
	add(13, "no turn", judgeCommits(nil))
	add(11, "another program", judgeDigest("sha256:1", "sha256:2"))
	add(11, "no digest", judgeDigest("", ""))
	for _, line := range strings.SplitAfter(heldStatus, "\n")[1:] {
		if line != "" {
			add(11, "a worker without "+line, judgePrivileges(strings.Replace(heldStatus, line, strings.NewReplacer("70001", "0", "\t1", "\t0", "\t2", "\t0", "\t0000000000000000", "\t00000000a80425fb").Replace(line), 1)))
		}
	}
	add(11, "a worker that nobody knows", judgePrivileges(""))
}

func TestWhatIsSoundPassesTheLooks(t *testing.T) {
	for what, err := range map[string]error{
		"worlds":     judgeWorlds(threeWorlds()),
		"sights":     judgeSights([]sight{{"own", "it", true, true}, {"other", "it", false, false}}),
		"borrowed":   judgeBorrowed([]string{"capability_scope"}, []string{"capability_invalid"}, []string{impostor.Granted}),
		"limits":     judgeLimits(noCores),
		"claims":     judgeClaims(claimedBy(nil)),
		"privileges": judgePrivileges(heldStatus),
		"digest":     judgeDigest("sha256:1", "sha256:1"),
		"succession": judgeSuccession(succeeded()),
		"commits":    judgeCommits([]commit{{"run.finished", true, true}, {"run.error thread_durability_uncertain", true, true}, {"run.error x", false, true}}),
		"unreached":  judgeUnreached([]attempt{{What: "x", Inside: errors.New("no")}}),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Without the layer: from a process that is in no sandbox everything that is forbidden is
// reached, and the check says so.
func TestAProcessWithoutASandboxReachesWhatIsForbidden(t *testing.T) {
	if os.Getenv(NetworkVariable) == "" {
		t.Skip("NOT TESTED: it takes root")
	}
	targets, err := forbidden.Listen(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer forbidden.Close(targets)
	self, err := procs.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		a := try(t.Context(), self, target)
		if a.Outside != nil || a.Inside != nil || judgeUnreached([]attempt{a}) == nil {
			t.Errorf("%+v", a)
		}
	}
}

// A canary that leaked is found, in whichever file, and so are processes that are in no
// world of their own.
func TestWhatLeakedIsFound(t *testing.T) {
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(data, "logs", "a"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys := secrets.Secrets{"a key": "s3cr3t-key"}
	verdict := func() error {
		sights, err := inFolder(data, "logs", keys, "canary-1", "inst-1")
		if err != nil {
			t.Fatal(err)
		}
		return judgeSights(sights)
	}
	token := "eyJhbGciOiJub25lIn0" + ".eyJhIjoiYiJ9." + strings.Repeat("x", 20)
	for _, leak := range []string{"", " s3cr3t-key", " canary-1", " " + token} {
		write("inst-1 started" + leak)
		if (verdict() == nil) != (leak == "") {
			t.Errorf("a log with %q: %v", leak, verdict())
		}
	}
	write("nothing")
	if verdict() == nil {
		t.Error("logs of something else do")
	}
	worlds, err := worldsOf(os.Getpid(), os.Getppid(), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if judgeWorlds(worlds) == nil || maps.Equal(worlds[0], worldOf{}) {
		t.Error("processes of one world are told apart")
	}
}
