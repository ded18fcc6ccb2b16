package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compile builds a program into folder. Nothing of the machine, of the time or of
// the folder it is built in gets into the binary; the version of Go does, and stands
// in the bill of materials.
func compile(ctx context.Context, source string, p program, folder string) (string, error) {
	path, err := filepath.Abs(filepath.Join(folder, p.name))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", path, p.pkg)
	cmd.Dir = filepath.Join(source, p.module)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), shapesBuild),
		"CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build of %s in %s: %w\n%s", p.pkg, p.module, err, out)
	}
	return path, nil
}

// shapesBuild tells the variables that compile sets itself.
func shapesBuild(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"CGO_ENABLED", "GOWORK", "GOOS", "GOARCH", "GOAMD64", "GOFLAGS", "GOEXPERIMENT", "GOFIPS140"}, name)
}
