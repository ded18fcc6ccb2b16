package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const dockerfile = "deploy/images/Dockerfile"

// stages reads the Dockerfile with BuildKit's own parser and linter.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", dockerfile))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("%s: %s", dockerfile, w.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, description, _, message string, _ []parser.Range) {
		t.Errorf("%s: %s: %s: %s", dockerfile, rule, description, message)
	}})
	stages, args, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	if len(stages) != 2 || len(args) != 2 {
		t.Fatalf("%d stages and %d arguments before them: want the build and the image, and an image of each", len(stages), len(args))
	}
	return stages
}

func of[C instructions.Command](stage instructions.Stage) []C {
	var out []C
	for _, c := range stage.Commands {
		if c, ok := c.(C); ok {
			out = append(out, c)
		}
	}
	return out
}

// There is no container engine here to build it. What it would run is run instead, on what it would copy and with the
// environment that it sets: it gives the programs that `make images` gives, to the byte.
func TestDockerfileBuildsTheSamePrograms(t *testing.T) {
	t.Parallel()
	build := stages(t)[0]
	worker, err := find("worker")
	if err != nil {
		t.Fatal(err)
	}
	folder, out := t.TempDir(), t.TempDir()
	variables := map[string]string{"SERVICE": worker.programs[0].name, "BESIDE": worker.programs[1].name}
	expand := func(s string) string { return os.Expand(s, func(name string) string { return variables[name] }) }
	copies := of[*instructions.CopyCommand](build)
	if len(copies) == 0 {
		t.Fatal("nothing is copied into the build")
	}
	for _, c := range copies {
		from := expand(c.SourcePaths[0])
		if err := os.CopyFS(filepath.Join(folder, expand(c.DestPath)), os.DirFS(filepath.Join("../..", from))); err != nil {
			t.Fatal(err)
		}
	}
	runs := of[*instructions.RunCommand](build)
	if len(runs) != 1 {
		t.Fatalf("%d commands are run", len(runs))
	}
	script := strings.ReplaceAll(strings.Join(runs[0].CmdLine, "\n"), "/out", out)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir, cmd.Env = folder, slices.DeleteFunc(os.Environ(), shapesBuild)
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	for _, e := range of[*instructions.EnvCommand](build) {
		for _, pair := range e.Env {
			cmd.Env = append(cmd.Env, pair.Key+"="+pair.Value)
		}
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, p := range worker.programs {
		path, err := compile(t.Context(), "../..", p, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(contents(t, path), contents(t, filepath.Join(out, p.name))) {
			t.Errorf("%s is another program than that of `make images`", p.name)
		}
	}
	if to, err := os.Readlink(filepath.Join(out, "entrypoint")); err != nil || to != worker.programs[0].name {
		t.Errorf("entrypoint is %q: %v", to, err)
	}
}

// The image is a program that nobody else's user owns, and not root's process.
func TestDockerfileOfTheImage(t *testing.T) {
	t.Parallel()
	image := stages(t)[1]
	users := of[*instructions.UserCommand](image)
	if len(users) != 1 || users[0].User != "65532:65532" {
		t.Errorf("users: %+v", users)
	}
	entry := of[*instructions.EntrypointCommand](image)
	if len(entry) != 1 || entry[0].PrependShell || !slices.Equal(entry[0].CmdLine, []string{"/entrypoint"}) {
		t.Errorf("entrypoint: %+v", entry)
	}
	copies := of[*instructions.CopyCommand](image)
	if len(copies) != 1 || copies[0].From != "build" || copies[0].Chown != "0:0" || copies[0].Chmod != "0755" || copies[0].SourcePaths[0] != "/out/" {
		t.Errorf("copied: %+v", copies)
	}
	if runs := of[*instructions.RunCommand](image); len(runs) > 0 {
		t.Error("something is run in an image without a shell")
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
