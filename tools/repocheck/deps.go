package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// shippedTools are modules outside the workspace whose binaries users run.
var shippedTools = []module{{Path: "cofferdam.dev/tools/openfga", Dir: "tools/openfga"}}

// checkDeps checks each module of the workspace the way an image builds it,
// without the workspace: it is tidy, it builds, its tests compile, it uses the
// versions that every other module and the workspace use, it imports only what
// it may, and what it links has a permissive licence.
//
// All failures are reported, not just the first.
func checkDeps(ctx context.Context, stdout io.Writer) error {
	modules, err := listModules(ctx)
	if err != nil {
		return err
	}
	var (
		failures []error
		versions = versionTable{}
		linked   = map[string]module{}
	)
	for _, m := range modules {
		fmt.Fprintf(os.Stderr, "checking %s ...\n", m.Path)
		failures = append(failures, buildAlone(ctx, m)...)
		packages, err := listPackages(ctx, m.Dir, false, "-mod=readonly", "-deps", "-test", "-json=ImportPath,Module,Standard,Error", "./...")
		if err != nil {
			failures = append(failures, err)
			continue
		}
		versions.add(m.Path, packages)
		failures = append(failures, checkArrows(m.Path, packages)...)
		if strings.HasSuffix(m.Path, "/tests") {
			continue // ships nothing
		}
		failures = append(failures, collectLinked(ctx, m, linked))
	}
	for _, m := range shippedTools {
		failures = append(failures, collectLinked(ctx, m, linked))
	}
	packages, err := listPackages(ctx, ".", true, "-deps", "-test", "-json=ImportPath,Module,Standard,Error", "work")
	failures = append(failures, err)
	versions.add("the workspace", packages)
	failures = append(failures, versions.conflicts()...)
	failures = append(failures, checkLicences(linked)...)

	failures = slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	figures := struct {
		Target       string `json:"target"`
		Passed       bool   `json:"passed"`
		Modules      int    `json:"modules"`
		Dependencies int    `json:"dependencies"`
		Failures     int    `json:"failures"`
	}{"check-deps", len(failures) == 0, len(modules), len(versions), len(failures)}
	if err := json.NewEncoder(stdout).Encode(figures); err != nil {
		return err
	}
	return errors.Join(failures...)
}

// buildAlone builds and vets m, tests included, without the workspace.
func buildAlone(ctx context.Context, m module) []error {
	var failures []error
	// The diff is long and says no more than the error.
	if err := goCommand(ctx, m.Dir, false, "mod", "tidy", "-diff").Run(); err != nil {
		failures = append(failures, fmt.Errorf("%s: go.mod or go.sum is not tidy: run `make tidy`: %w", m.Path, err))
	}
	for _, args := range [][]string{
		{"build", "-mod=readonly", "-o", os.DevNull, "./..."},
		{"vet", "-mod=readonly", "./..."},
	} {
		command := goCommand(ctx, m.Dir, false, args...)
		command.Stdout = os.Stderr
		if err := command.Run(); err != nil {
			failures = append(failures, fmt.Errorf("%s: go %s: %w", m.Path, strings.Join(args, " "), err))
		}
	}
	return failures
}

// versionTable is module path, version, who uses it.
type versionTable map[string]map[string][]string

func (t versionTable) add(user string, packages []goPackage) {
	for _, p := range packages {
		if p.Module == nil || isOurs(p.Module.Path) {
			continue
		}
		version := p.Module.Version
		if r := p.Module.Replace; r != nil {
			version = strings.TrimSpace(r.Path + " " + r.Version)
		}
		users := t[p.Module.Path]
		if users == nil {
			users = map[string][]string{}
			t[p.Module.Path] = users
		}
		if !slices.Contains(users[version], user) {
			users[version] = append(users[version], user)
		}
	}
}

// conflicts has an error for each module that is used in two versions: its
// tests would run another version than its image has.
func (t versionTable) conflicts() []error {
	var failures []error
	for _, path := range slices.Sorted(maps.Keys(t)) {
		if len(t[path]) < 2 {
			continue
		}
		var text strings.Builder
		for _, version := range slices.Sorted(maps.Keys(t[path])) {
			fmt.Fprintf(&text, "\n  %s in %s", version, strings.Join(t[path][version], ", "))
		}
		failures = append(failures, fmt.Errorf("%s is used in several versions:%s", path, text.String()))
	}
	return failures
}

func isOurs(path string) bool {
	return path == "cofferdam.dev" || strings.HasPrefix(path, "cofferdam.dev/")
}
