package worker_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A worker is what hosts untrusted work: what is not linked into it cannot be
// turned against anybody. This test is the list of what it must never be able to
// do. MCP is not on it: an agent program gets its tools by it from the worker,
// which has no network to reach a tool server by itself.
func TestDependencyClosure(t *testing.T) {
	closure := dependencies(t, "cofferdam.dev/services/worker/cmd/worker")
	forbidden := map[string]string{
		"modernc.org/":                      "a database",
		"github.com/mattn/go-sqlite3":       "a database",
		"go.mongodb.org/":                   "a database",
		"gocloud.dev/":                      "an object store",
		"github.com/openfga/":               "the authorizer",
		"k8s.io/":                           "Kubernetes",
		"sigs.k8s.io/":                      "Kubernetes",
		"cofferdam.dev/pkg/binding":         "the committed record",
		"cofferdam.dev/pkg/authz":           "the authorizer",
		"cofferdam.dev/pkg/capability/":     "minting, for tests",
		"cofferdam.dev/pkg/identity/":       "making identities, for tests",
		"cofferdam.dev/pkg/rpc/":            "what only tests need",
		"cofferdam.dev/services/capability": "minting",
		"cofferdam.dev/deploy":              "what deploys it",
		"cofferdam.dev/tests":               "tests",
	}
	for _, dep := range closure {
		for prefix, what := range forbidden {
			if strings.HasPrefix(dep, prefix) {
				t.Errorf("the worker links %s: %s", dep, what)
			}
		}
		if dep == "database/sql" { // its driver package, which libraries name, is interfaces only
			t.Error("the worker links database/sql")
		}
		if strings.HasSuffix(dep, "store") && strings.HasPrefix(dep, "cofferdam.dev/") {
			t.Errorf("the worker links a store: %s", dep)
		}
		if strings.HasPrefix(dep, "cofferdam.dev/services/") && !strings.HasPrefix(dep, "cofferdam.dev/services/worker") {
			t.Errorf("the worker links another service: %s", dep)
		}
	}
	// A list that has not what must be in it would forbid nothing.
	for _, want := range []string{"cofferdam.dev/pkg/capability", "cofferdam.dev/services/worker/internal/native", "crypto/tls"} {
		if !slices.Contains(closure, want) {
			t.Errorf("%s is not in the closure of %d packages", want, len(closure))
		}
	}
}

// The same look finds a database where there is one.
func TestDependencyClosureSees(t *testing.T) {
	closure := dependencies(t, "cofferdam.dev/pkg/rpc/rpctest")
	if !slices.Contains(closure, "database/sql") || !slices.Contains(closure, "cofferdam.dev/pkg/capability/capabilitytest") {
		t.Error("the closure does not show what is linked")
	}
}

func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	return strings.Fields(string(out))
}
