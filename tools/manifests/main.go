// Command manifests builds the manifests of deploy/kubernetes without kubectl and helm.
package main

import (
	"fmt"
	"os"

	"cofferdam.dev/tools/manifests/internal/render"
)

func main() {
	if len(os.Args) != 3 || os.Args[1] != "kustomize" {
		fmt.Fprintln(os.Stderr, "usage: manifests kustomize FOLDER")
		os.Exit(2)
	}
	out, err := render.Kustomize(os.Args[2])
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
