package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// fuzzTarget is one Fuzz function.
type fuzzTarget struct {
	Package string
	Name    string
}

var fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// listTests gives the packages of the workspace with the names of their test files.
func listTests(ctx context.Context) ([]goPackage, error) {
	modules, err := listModules(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,Error"}
	for _, m := range modules {
		args = append(args, filepath.Join(m.Dir, "..."))
	}
	return listPackages(ctx, ".", true, args...)
}

// fuzzAll runs every fuzz target of the workspace for the time given, one after
// another, and ends with one JSON line. No target is an error, and so is a
// crash; the input that caused it then lies in the package's testdata/fuzz.
func fuzzAll(ctx context.Context, each time.Duration, stdout io.Writer) error {
	packages, err := listTests(ctx)
	if err != nil {
		return err
	}
	targets, err := findFuzzTargets(packages)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return errors.New("no fuzz target found")
	}
	start := time.Now()
	var failures []error
	for _, target := range targets {
		fmt.Fprintf(os.Stderr, "fuzzing %s %s for %s ...\n", target.Package, target.Name, each)
		command := goCommand(ctx, ".", true, "test", "-run=^$", "-fuzz=^"+target.Name+"$", "-fuzztime="+each.String(), target.Package)
		command.Stdout = os.Stderr
		if err := command.Run(); err != nil {
			failures = append(failures, fmt.Errorf("%s %s: %w", target.Package, target.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	figures := struct {
		Target  string  `json:"target"`
		Passed  bool    `json:"passed"`
		Targets int     `json:"fuzz_targets"`
		Failed  int     `json:"failed"`
		Seconds float64 `json:"seconds"`
	}{"fuzz", len(failures) == 0, len(targets), len(failures), time.Since(start).Round(time.Second).Seconds()}
	if err := json.NewEncoder(stdout).Encode(figures); err != nil {
		return err
	}
	return errors.Join(failures...)
}

// findFuzzTargets reads the test files rather than asking `go test -list`,
// which would first build and link the tests of every package.
func findFuzzTargets(packages []goPackage) ([]fuzzTarget, error) {
	var targets []fuzzTarget
	for _, p := range packages {
		for _, name := range append(append([]string{}, p.TestGoFiles...), p.XTestGoFiles...) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			for _, match := range fuzzFunction.FindAllStringSubmatch(string(text), -1) {
				targets = append(targets, fuzzTarget{p.ImportPath, match[1]})
			}
		}
	}
	return targets, nil
}
