// Command manifests works with deploy/kubernetes without kubectl and helm.
//
//	manifests kustomize FOLDER   print the objects of an overlay, as kubectl kustomize does
//	manifests chart FOLDER       write the Helm chart of the manifests in FOLDER to FOLDER/chart
//	manifests check FOLDER       print what breaks an invariant of every installation in an operator's overlay, and what is
//	                             not filled in there, and fail if there is anything
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"cofferdam.dev/tools/manifests/internal/chart"
	"cofferdam.dev/tools/manifests/internal/invariant"
	"cofferdam.dev/tools/manifests/internal/render"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: manifests kustomize|chart|check FOLDER")
	}
	switch args[0] {
	case "kustomize":
		out, err := render.Kustomize(args[1])
		if err != nil {
			return err
		}
		_, err = os.Stdout.Write(out)
		return err
	case "chart":
		return write(args[1])
	case "check":
		return check(args[1])
	default:
		return fmt.Errorf("%s is neither kustomize nor chart nor check", args[0])
	}
}

func check(overlay string) error {
	text, err := render.Kustomize(overlay)
	if err != nil {
		return err
	}
	in, err := invariant.Decode(text)
	if err != nil {
		return err
	}
	wrong := append(invariant.Check(in), invariant.Unfilled(in)...)
	for _, what := range wrong {
		if _, err := fmt.Fprintln(os.Stdout, what); err != nil {
			return err
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s: %d things are wrong", overlay, len(wrong))
	}
	return nil
}

func write(kubernetes string) error {
	files, err := chart.Generate(kubernetes)
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(kubernetes, "chart", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
