package catalogue_test

import (
	"regexp"
	"strings"
	"testing"

	"cofferdam.dev/services/toolbroker/internal/catalogue"
)

func TestOfferedNamesAre(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"fs.read_text_file":            "fs_read_text_file",
		"fs.a":                         "fs_a",
		"fs.a_b":                       "fs_a_b",
		"gh.repos/list":                "gh_repos_list_" + suffix(t, "gh.repos/list"),
		"gh.getUser":                   "gh_getuser_" + suffix(t, "gh.getUser"),
		"fs_a.b":                       "fs_a_b_" + suffix(t, "fs_a.b"),
		"a-b.c":                        "a_b_c_" + suffix(t, "a-b.c"),
		"demo.a.b":                     "demo_a_b_" + suffix(t, "demo.a.b"),
		"n." + strings.Repeat("x", 38): "n_" + strings.Repeat("x", 38),
		"n." + strings.Repeat("x", 39): "n_" + strings.Repeat("x", 29) + "_" + suffix(t, "n."+strings.Repeat("x", 39)),
	} {
		if got := catalogue.OfferedName(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	// Names are written into conversations: they must stay what they are.
	if got := catalogue.OfferedName("gh.getUser"); got != "gh_getuser_d4oyiawv" {
		t.Errorf("the suffix changed: %q", got)
	}
}

// Two tools with one name: the one that stands first keeps it, and no third one
// changes that.
func TestCollidingNames(t *testing.T) {
	t.Parallel()
	const mixed, plain = "gh.getUser", "gh.getuser_d4oyiawv" // the second looks like the first with its suffix
	if catalogue.OfferedName(mixed) != catalogue.OfferedName(plain) {
		t.Fatal("these do not collide any more: find others")
	}
	for _, ids := range [][]string{{mixed, plain}, {plain, mixed}, {mixed, "a.b", plain, "c.d"}, {plain, mixed, "z.z"}} {
		names := catalogue.OfferedNames(ids)
		if names[ids[0]] != catalogue.OfferedName(ids[0]) {
			t.Errorf("%v: the first is %s", ids, names[ids[0]])
		}
		seen := map[string]string{}
		for id, name := range names {
			if other, twice := seen[name]; twice || len(name) > 40 {
				t.Errorf("%s and %s are %q", id, other, name)
			}
			seen[name] = id
		}
		more := catalogue.OfferedNames(append(append([]string{}, ids...), "new.tool", "gh.GETUSER", "gh.get.User"))
		for id, name := range names {
			if more[id] != name {
				t.Errorf("%v: %s was %s and is %s", ids, id, name, more[id])
			}
		}
	}
}

func suffix(t *testing.T, id string) string {
	t.Helper()
	name := catalogue.OfferedName(id)
	return name[len(name)-8:]
}

// One tool name with a dot made the provider refuse every tool (kolega-code 581),
// and prefixes pushed names past 64 characters (vscode 243602).
func FuzzOfferedNames(f *testing.F) {
	f.Add("fs", "read_text_file", "fs", "readTextFile")
	f.Add("fs_a", "b", "fs", "a_b")
	f.Add("a", "b.c", "a", "b/c")
	f.Add("a", "b/c", "a", "b/c")
	form, namespace, tool := regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`), regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`), regexp.MustCompile(`^[A-Za-z0-9._/-]{1,128}$`)
	f.Fuzz(func(t *testing.T, ns1, name1, ns2, name2 string) {
		if !namespace.MatchString(ns1) || !namespace.MatchString(ns2) || !tool.MatchString(name1) || !tool.MatchString(name2) {
			return
		}
		a, b := catalogue.OfferedName(ns1+"."+name1), catalogue.OfferedName(ns2+"."+name2)
		if !form.MatchString(a) {
			t.Errorf("%s.%s is offered as %q", ns1, name1, a)
		}
		both := catalogue.OfferedNames([]string{ns1 + "." + name1, ns2 + "." + name2})
		if both[ns1+"."+name1] != a {
			t.Errorf("%s.%s is offered as %q because of another", ns1, name1, both[ns1+"."+name1])
		}
		if len(both) == 2 && both[ns1+"."+name1] == both[ns2+"."+name2] {
			t.Errorf("%s.%s and %s.%s are offered as %q and %q", ns1, name1, ns2, name2, a, b)
		}
	})
}
