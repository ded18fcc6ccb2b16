package binding_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"cofferdam.dev/pkg/binding"
)

var key = bytes.Repeat([]byte{7}, 32)

func newIDs(t *testing.T, key []byte) *binding.IDs {
	t.Helper()
	ids, err := binding.NewIDs(key)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func identity() binding.Identity {
	return binding.Identity{Environment: "prod", Subject: "user-1", Organization: "acme", AgentID: "demo", ConversationID: "c1"}
}

func TestIDsFitTheEnvelope(t *testing.T) {
	t.Parallel()
	b := newIDs(t, key).BindingID(identity())
	for what, c := range map[string]struct{ got, pattern string }{
		"binding": {b, `^hs_[A-Za-z0-9_-]{16,125}$`},
		"run":     {binding.RunID(b, 1, "k"), `^run_[A-Za-z0-9_-]{43}$`},
		"resume":  {binding.ResumeRunID(b, 1, "i", 1), `^run_[A-Za-z0-9_-]{43}$`},
		"claim":   {binding.ClaimName(b, 1), `^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`},
	} {
		if !regexp.MustCompile(c.pattern).MatchString(c.got) {
			t.Errorf("%s id %q does not match %s", what, c.got, c.pattern)
		}
	}
}

// TestIDsAreStable: an id that changes with a version of this program would lose
// every binding.
func TestIDsAreStable(t *testing.T) {
	t.Parallel()
	b := newIDs(t, key).BindingID(identity())
	for _, c := range []struct{ got, want string }{
		{b, "hs_v5tFArbYb1Q59t2xuoqYTXjYRFQz011x7xIGAnhwN_g"},
		{binding.RunID("hs_x", 1, "k"), "run_0xdBuiAGWWpgTzEiBP5whYE5PKO1YGn2vWBp7O0r7Cc"},
		{binding.ResumeRunID("hs_x", 1, "i", 2), "run_PsBWFwNNr6xuAel1iXIaNodrdCIZ6h5LsED2lfES0BY"},
		{binding.ClaimName("hs_x", 1), "hc-b27ae5778d3dacef15265bfca640432d"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestBindingIDDependsOnTheOwner(t *testing.T) {
	t.Parallel()
	ids := newIDs(t, key)
	seen := map[string]string{ids.BindingID(identity()): "base"}
	for what, change := range map[string]func(*binding.Identity){
		"environment":  func(i *binding.Identity) { i.Environment = "test" },
		"subject":      func(i *binding.Identity) { i.Subject = "user-2" },
		"organization": func(i *binding.Identity) { i.Organization = "" },
		"agent":        func(i *binding.Identity) { i.AgentID = "other" },
		"conversation": func(i *binding.Identity) { i.ConversationID = "c2" },
		"moved border": func(i *binding.Identity) { i.AgentID, i.ConversationID = "democ", "1" },
	} {
		i := identity()
		change(&i)
		id := ids.BindingID(i)
		if other, ok := seen[id]; ok {
			t.Errorf("%s gives the same id as %s", what, other)
		}
		seen[id] = what
	}
	versions := identity()
	versions.AgentVersion, versions.HarnessID, versions.AdapterVersion = 9, "h", "2"
	if _, ok := seen[ids.BindingID(versions)]; !ok {
		t.Error("another version is another conversation")
	}
	if newIDs(t, bytes.Repeat([]byte{8}, 32)).BindingID(identity()) == ids.BindingID(identity()) {
		t.Error("the key makes no difference")
	}
	for id := range seen {
		for _, secret := range []string{"user-1", "acme", "demo"} {
			if strings.Contains(id, secret) {
				t.Errorf("%q carries %q", id, secret)
			}
		}
	}
}

func TestIDsNeedAKey(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 16, 31} {
		if _, err := binding.NewIDs(make([]byte, n)); err == nil {
			t.Errorf("a key of %d bytes was taken", n)
		}
	}
	k := bytes.Clone(key)
	ids := newIDs(t, k)
	want := ids.BindingID(identity())
	clear(k)
	if ids.BindingID(identity()) != want {
		t.Error("the ids use the caller's slice")
	}
}

// TestRunIDsDiffer: no two runs of anything share an id, because chunks and
// ledger rows are found by it.
func TestRunIDsDiffer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type run struct {
			binding string
			epoch   uint32
			resume  bool
			key     string
			rev     uint64
		}
		draw := func() run {
			return run{
				binding: rapid.StringMatching(`hs_[ab]{0,3}`).Draw(t, "binding"), epoch: rapid.Uint32Range(0, 3).Draw(t, "epoch"),
				resume: rapid.Bool().Draw(t, "resume"), key: rapid.StringMatching(`[ab]{0,3}`).Draw(t, "key"), rev: rapid.Uint64Range(0, 2).Draw(t, "rev"),
			}
		}
		id := func(r run) string {
			if r.resume {
				return binding.ResumeRunID(r.binding, r.epoch, r.key, r.rev)
			}
			return binding.RunID(r.binding, r.epoch, r.key)
		}
		a, b := draw(), draw()
		if !a.resume {
			a.rev = 0
		}
		if !b.resume {
			b.rev = 0
		}
		if (id(a) == id(b)) != (a == b) {
			t.Fatalf("%+v: %s, %+v: %s", a, id(a), b, id(b))
		}
	})
}
