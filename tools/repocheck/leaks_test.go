package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLeaks(t *testing.T) {
	const head = "package p\n\nimport \"testing\"\n\n"
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"on one line":        {head + "func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }\n", true},
		"with options":       {head + "func TestMain(m *testing.M) {\n\tgoleak.VerifyTestMain(m, goleak.IgnoreCurrent())\n}\n", true},
		"after other things": {head + "func run(m *testing.M) int {\n\tif err := goleak.Find(); err != nil {\n\t\treturn 1\n\t}\n\treturn m.Run()\n}\n", true},
		"another Find":       {head + "func TestX(t *testing.T) { tree.Find() }\n", false},
		"nothing":            {head + "func TestX(t *testing.T) {}\n", false},
		"a comment":          {head + "// goleak.VerifyTestMain(m) is missing\nfunc TestX(t *testing.T) {}\n", false},
		"one test alone":     {head + "func TestX(t *testing.T) { goleak.VerifyNone(t) }\n", false},
		"another TestMain":   {head + "func TestMain(m *testing.M) { os.Exit(m.Run()) }\n", false},
		"commented in code":  {head + "func TestMain(m *testing.M) {\n\t// goleak.VerifyTestMain(m)\n}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			n, err := leaksLookedFor([]goPackage{{ImportPath: "x/p", Dir: dir, XTestGoFiles: []string{"x_test.go"}}, {ImportPath: "x/untested"}})
			if n != 1 || (err == nil) != c.want {
				t.Errorf("%d packages, %v", n, err)
			}
			if err != nil && !strings.Contains(err.Error(), "x/p ") {
				t.Errorf("%v names no package", err)
			}
		})
	}
}
