package runstest

import (
	"context"
	"fmt"

	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// Files makes handles that lead nowhere.
type Files struct{}

// Put implements runs.Files.
func (Files) Put(_ context.Context, env fence.Envelope, f runs.InlineFile) (worker.File, error) {
	return worker.File{Handle: "file-of-" + env.RunID, DisplayName: f.Name, MIMEType: f.MIMEType, Size: uint64(len(f.Data))}, nil
}

// Uploads implements runs.Files.
func (Files) Uploads(_ context.Context, env fence.Envelope, n uint32) ([]worker.Upload, error) {
	out := make([]worker.Upload, n)
	for i := range out {
		out[i] = worker.Upload{Handle: fmt.Sprintf("upload-%d-of-%s", i, env.RunID), MaxBytes: 1}
	}
	return out, nil
}
