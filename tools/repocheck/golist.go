package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// module is what `go list -m -json` says of a module, as far as needed here.
type module struct {
	Path    string
	Version string
	Dir     string
	Main    bool
	Replace *module
}

// goPackage is what `go list -json` says of a package, as far as needed here.
type goPackage struct {
	ImportPath   string
	Name         string
	Dir          string
	Standard     bool
	Module       *module
	TestGoFiles  []string
	XTestGoFiles []string
	Error        *struct{ Err string }
}

// goCommand is a go command in dir; workspace off means as an image builds.
func goCommand(ctx context.Context, dir string, workspace bool, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Stderr = os.Stderr
	command.Env = os.Environ()
	if !workspace {
		command.Env = append(command.Env, "GOWORK=off")
	}
	return command
}

// listModules lists the modules of the workspace.
func listModules(ctx context.Context) ([]module, error) {
	return goJSON[module](goCommand(ctx, ".", true, "list", "-m", "-json"))
}

// listPackages lists packages; one that does not load is an error.
func listPackages(ctx context.Context, dir string, workspace bool, args ...string) ([]goPackage, error) {
	packages, err := goJSON[goPackage](goCommand(ctx, dir, workspace, append([]string{"list"}, args...)...))
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		if p.Error != nil {
			return nil, fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
	}
	return packages, nil
}

// goJSON runs command and decodes the JSON values on its stdout.
func goJSON[T any](command *exec.Cmd) ([]T, error) {
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", strings.Join(command.Args, " "), command.Dir, err)
	}
	var values []T
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var value T
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return values, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
		}
		values = append(values, value)
	}
}
