package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
)

// checkLeaks sees that every package of the workspace that has tests looks for
// goroutines that they leave behind, and ends with one JSON line.
func checkLeaks(ctx context.Context, stdout io.Writer) error {
	packages, err := listTests(ctx)
	if err != nil {
		return err
	}
	tested, err := leaksLookedFor(packages)
	if err == nil && tested == 0 {
		err = errors.New("no package with tests found")
	}
	figures := struct {
		Target   string `json:"target"`
		Passed   bool   `json:"passed"`
		Packages int    `json:"packages"`
	}{"check-leaks", err == nil, tested}
	return errors.Join(json.NewEncoder(stdout).Encode(figures), err)
}

// leaksLookedFor counts the packages with tests; those that do not look for leaks are
// the error.
func leaksLookedFor(packages []goPackage) (tested int, _ error) {
	var errs []error
	for _, p := range packages {
		files := append(append([]string{}, p.TestGoFiles...), p.XTestGoFiles...)
		if len(files) == 0 {
			continue
		}
		tested++
		looks := false
		for _, name := range files {
			found, err := looksForLeaks(filepath.Join(p.Dir, name))
			if err != nil {
				return tested, err
			}
			looks = looks || found
		}
		if !looks {
			errs = append(errs, fmt.Errorf("%s has tests that look for no leaks: add a main_test.go with goleak.VerifyTestMain", p.ImportPath))
		}
	}
	return tested, errors.Join(errs...)
}

// looksForLeaks reports whether a file calls what looks when all tests are over:
// VerifyTestMain, or Find where TestMain has more to do.
func looksForLeaks(path string) (found bool, _ error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "VerifyTestMain" || f.Sel.Name == "Find") {
			of, named := f.X.(*ast.Ident)
			found = found || named && of.Name == "goleak"
		}
		return true
	})
	return found, nil
}
