package escape

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cofferdam.dev/pkg/cgroup"
	"cofferdam.dev/pkg/isolation"
)

// row is one of the table of layers of docs/sandbox.md.
type row struct{ attack, folder, test string }

// rowPattern matches | `layer` … | keeps out | attack | `folder` `test` |.
var rowPattern = regexp.MustCompile("(?m)^\\| `([a-z-]+)`[^|]* \\|[^|]+\\| ([^|]+) \\| `([a-z/]+)` `(Test[A-Za-z]+)` \\|$")

// Every layer that a sandbox has, and every limit of its control groups, has a row in
// docs/sandbox.md with an attack, and with a test that there is. That test has a case
// for each: it goes through the same list and fails where there is none.
func TestEveryLayerHasItsRow(t *testing.T) {
	root := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "sandbox.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for _, m := range rowPattern.FindAllStringSubmatch(string(doc), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("%s has two rows", m[1])
		}
		rows[m[1]] = row{strings.TrimSpace(m[2]), m[3], m[4]}
	}
	known := map[string]row{}
	for _, l := range isolation.Layers() {
		known[string(l)] = row{folder: "pkg/isolation", test: "TestLayerAloneHolds"}
	}
	for _, c := range cgroup.Controllers() {
		known[string(c)] = row{folder: "pkg/cgroup", test: "TestLimitAloneHolds"}
	}
	for name, want := range known {
		got, ok := rows[name]
		if !ok || got.attack == "" {
			t.Errorf("docs/sandbox.md has no row for %s", name)
			continue
		}
		if got.folder != want.folder || got.test != want.test {
			t.Errorf("%s is shown by %s %s, and its row says %s %s", name, want.folder, want.test, got.folder, got.test)
		}
		if !has(t, filepath.Join(root, got.folder), got.test) {
			t.Errorf("%s: there is no %s in %s", name, got.test, got.folder)
		}
	}
	for name := range rows {
		if _, ok := known[name]; !ok {
			t.Errorf("docs/sandbox.md has a row for %s, which no sandbox has", name)
		}
	}
}

// has reports whether a folder has a test of a name.
func has(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == test {
				return true
			}
		}
	}
	return false
}
