package main

import (
	"fmt"
	"slices"
	"strings"
)

// mayUse says which modules of ours a module may use besides itself. Services
// meet on the wire only; pkg knows none of them.
func mayUse(user string) func(used string) bool {
	const shared = "cofferdam.dev/pkg"
	switch user {
	case shared:
		return func(string) bool { return false }
	case "cofferdam.dev/tests":
		return func(string) bool { return true }
	case "cofferdam.dev/deploy/local":
		return func(used string) bool { return used == shared || strings.HasPrefix(used, "cofferdam.dev/services/") }
	default:
		return func(used string) bool { return used == shared }
	}
}

// checkArrows has an error for each module of ours among the dependencies of
// user, tests included, that user must not know.
func checkArrows(user string, packages []goPackage) []error {
	var (
		failures []error
		seen     []string
		allowed  = mayUse(user)
	)
	for _, p := range packages {
		if p.Module == nil || !isOurs(p.Module.Path) || p.Module.Path == user || allowed(p.Module.Path) || slices.Contains(seen, p.Module.Path) {
			continue
		}
		seen = append(seen, p.Module.Path)
		failures = append(failures, fmt.Errorf("%s must not depend on %s, and does through %s", user, p.Module.Path, p.ImportPath))
	}
	return failures
}
