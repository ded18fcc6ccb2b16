package lease

import (
	"context"
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/agentfiles"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/worker"
)

const (
	contentsTimeout = 10 * time.Second
	// bindFilesTimeout is for a worker that reads the agent's files before it answers: up
	// to 64 MiB, in up to 512 requests.
	bindFilesTimeout = time.Minute
)

// Contents makes the handle through which a worker reads what its agent has. The same
// envelope and contents give the same handle, whichever replica asks: a bind that is sent
// again names what the first one named.
type Contents interface {
	// IssueContents makes it for the run of the envelope, which it ends with; "handle.N"
	// reads the Nth. not_found where one is not kept.
	IssueContents(ctx context.Context, env fence.Envelope, sums [][sha256.Size]byte) (handle string, err error)
}

// manifests are the skills and files of an agent as a worker gets them.
type manifests struct {
	// handle of all of them; empty without any.
	handle        string
	skills, files []worker.ManifestFile
}

// manifests makes the handle of the run and generation of env. Errors:
// dependency_unavailable; persistence_failed where something is not kept any more.
func (m *Manager) manifests(ctx context.Context, env fence.Envelope, a agents.Agent) (out manifests, err error) {
	const op = "lease.manifests"
	var sums [][sha256.Size]byte
	place := map[[sha256.Size]byte]int{}
	for _, f := range slices.Concat(a.Skills, a.Files) {
		sum := f.Content().SHA256
		if _, there := place[sum]; !there {
			place[sum] = len(sums)
			sums = append(sums, sum)
		}
	}
	if len(sums) == 0 {
		return out, nil
	}
	asking, cancel := context.WithTimeout(ctx, contentsTimeout)
	defer cancel()
	out.handle, err = m.cfg.Contents.IssueContents(asking, env, sums)
	switch {
	case fault.Is(err, fault.NotFound):
		return out, fault.Wrap(err, fault.PersistenceFailed, op, fault.Detail("agent: a file of this version is not kept any more; start the control plane with the folder that has it"))
	case err != nil && asking.Err() != nil && ctx.Err() == nil:
		return out, fault.Wrap(err, fault.DependencyUnavailable, op) // the service is deaf; the run has time
	case err != nil:
		return out, fault.From(err, op)
	}
	named := func(files []agentfiles.File) (manifest []worker.ManifestFile) {
		for _, f := range files {
			c := f.Content()
			manifest = append(manifest, worker.ManifestFile{
				Path: f.Path, Handle: out.handle + "." + strconv.Itoa(place[c.SHA256]), Size: uint64(max(c.Size, 0)), SHA256: c.SHA256, MIMEType: f.MIMEType,
			})
		}
		return manifest
	}
	out.skills, out.files = named(a.Skills), named(a.Files)
	return out, nil
}

// bindPatience is how long a worker may take to be bound.
func (m manifests) bindPatience() time.Duration {
	if m.handle != "" {
		return bindFilesTimeout
	}
	return bindTimeout
}
