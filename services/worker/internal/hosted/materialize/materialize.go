// Package materialize brings the manifests of a binding into the world of a
// hosted program.
package materialize

import (
	"context"
	"os"
	"path"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

// Copy copies files of the worker's workspace to where the program has the same
// paths, for it to read and for nobody in the world to write. A file that stands
// there is replaced. Without a workspace nothing was materialized, and there is
// nothing to copy.
//
// Errors: sandbox_not_ready where the workspace does not have a file, or the path
// leads out of it; those of the world.
func Copy(ctx context.Context, w hosted.World, workspace string, files []harness.Materialized) error {
	const op = "materialize.Copy"
	if workspace == "" || len(files) == 0 {
		return nil
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return fault.Wrap(err, fault.SandboxNotReady, op)
	}
	defer func() { _ = root.Close() }() // only read
	for _, f := range files {
		if err := copyFile(ctx, w, root, f.Path); err != nil {
			return fault.From(err, op)
		}
	}
	return nil
}

func copyFile(ctx context.Context, w hosted.World, root *os.Root, name string) error {
	from, err := root.Open(name)
	if err != nil {
		return fault.Wrap(err, fault.SandboxNotReady, "materialize.Copy")
	}
	defer func() { _ = from.Close() }() // only read
	return w.WriteFile(ctx, hosted.File{Path: path.Join(hosted.Workspace, name), ReadOnly: true}, from)
}
