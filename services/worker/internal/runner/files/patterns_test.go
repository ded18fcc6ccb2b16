//go:build linux

package files

import "testing"

func TestPatterns(t *testing.T) {
	t.Parallel()
	p := Patterns{Include: []string{".local/share/opencode", ".claude*", "a/*/c"}, Exclude: []string{".local/share/opencode/log", "a/x/c/*.tmp"}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]bool{ // in, and whether something below may be
		".local":                          {false, true},
		".local/share":                    {false, true},
		".local/share/opencode":           {true, true},
		".local/share/opencode/db":        {true, true},
		".local/share/opencode/log":       {false, false},
		".local/share/opencode/log/x":     {false, false},
		".local/share/opencode-evil":      {false, false},
		".local/share/other":              {false, false},
		".claude":                         {true, true},
		".claude.json":                    {true, true},
		".claude/projects/x":              {true, true},
		"a":                               {false, true},
		"a/x":                             {false, true},
		"a/x/c":                           {true, true},
		"a/x/c/y.tmp":                     {false, false},
		"a/x/c/y.tmp/z":                   {false, false},
		"a/x/b":                           {false, false},
		"b":                               {false, false},
		"x/.claude":                       {false, false},
		".local/share/opencode/log.other": {true, true},
	} {
		in, below := p.wanted(name)
		if in != want[0] || below != want[1] {
			t.Errorf("%s: %v, %v", name, in, below)
		}
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]bool{
		"a": true, "a/b": true, ".a": true, "..a": true, "a\xff": true, "a\\b": true,
		"": false, ".": false, "..": false, "/": false, "/a": false, "a/": false, "a//b": false, "a/../b": false, "../a": false, "./a": false, "a\x00": false,
	} {
		if Local(p) != want {
			t.Errorf("%q: %v", p, !want)
		}
	}
}
