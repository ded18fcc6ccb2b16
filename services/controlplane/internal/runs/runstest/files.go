package runstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// mostKept of one file, in bytes.
const mostKept = 1 << 20

// Files makes handles that lead nowhere, and keeps stored files in memory.
type Files struct {
	mu     sync.Mutex
	stored map[string]kept
	broken bool
}

type kept struct {
	runs.StoredFile

	content []byte
}

// Put implements runs.Files.
func (*Files) Put(_ context.Context, env fence.Envelope, f runs.InlineFile) (worker.File, error) {
	return worker.File{Handle: "file-of-" + env.RunID, DisplayName: f.Name, MIMEType: f.MIMEType, Size: uint64(len(f.Data))}, nil
}

// Uploads implements runs.Files.
func (*Files) Uploads(_ context.Context, env fence.Envelope, n uint32) ([]worker.Upload, error) {
	out := make([]worker.Upload, n)
	for i := range out {
		out[i] = worker.Upload{Handle: fmt.Sprintf("upload-%d-of-%s", i, env.RunID), MaxBytes: 1}
	}
	return out, nil
}

// Save implements runs.Files.
func (f *Files) Save(_ context.Context, env fence.Envelope, head runs.FileHead, content io.Reader) (runs.StoredFile, error) {
	b, err := io.ReadAll(io.LimitReader(content, mostKept))
	if err != nil {
		return runs.StoredFile{}, err
	}
	more, err := io.Copy(io.Discard, io.LimitReader(content, head.MaxBytes+1-int64(len(b))))
	switch size := int64(len(b)) + more; {
	case err != nil:
		return runs.StoredFile{}, err
	case size > head.MaxBytes:
		return runs.StoredFile{}, fault.New(fault.RequestTooLarge, "runstest.Save")
	case more > 0:
		return runs.StoredFile{}, fault.New(fault.Internal, "runstest.Save", fault.Detail("a test keeps less"))
	}
	k := kept{runs.StoredFile{
		ID: "obj_" + rand.Text(), BindingID: env.BindingID, Epoch: env.Epoch, Name: head.Name, MIMEType: head.MIMEType,
		Size: int64(len(b)), SHA256: sha256.Sum256(b),
	}, b}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stored == nil {
		f.stored = map[string]kept{}
	}
	f.stored[k.ID] = k
	return k.StoredFile, nil
}

// Handle implements runs.Files.
func (*Files) Handle(_ context.Context, env fence.Envelope, f runs.StoredFile) (worker.File, error) {
	return worker.File{Handle: f.ID + "-for-" + env.RunID, DisplayName: f.Name, MIMEType: f.MIMEType, Size: uint64(max(f.Size, 0))}, nil
}

// Stat implements runs.Files.
func (f *Files) Stat(_ context.Context, id string) (runs.StoredFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, ok := f.stored[id]
	if !ok {
		return runs.StoredFile{}, fault.New(fault.NotFound, "runstest.Stat")
	}
	return k.StoredFile, nil
}

// Stored is how many files are stored.
func (f *Files) Stored() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.stored)
}

// Break lets what is read break off in the middle.
func (f *Files) Break() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = true
}

// Read implements runs.Files.
func (f *Files) Read(_ context.Context, of runs.StoredFile, offset, n int64, send func([]byte) error) error {
	f.mu.Lock()
	k, broken := f.stored[of.ID], f.broken
	f.mu.Unlock()
	content := k.content[offset : offset+n]
	if broken {
		content = content[:n/2]
	}
	for part := range bytes.Lines(content) {
		if err := send(part); err != nil {
			return err
		}
	}
	if broken {
		return fault.New(fault.PersistenceFailed, "runstest.Read")
	}
	return nil
}
