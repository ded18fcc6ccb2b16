package lease_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/agentfiles"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// contents is a file broker that makes a handle for each run and generation.
type contents struct {
	fail func(ctx context.Context) error

	mu    sync.Mutex
	asked []issued
}

type issued struct {
	env  fence.Envelope
	sums [][sha256.Size]byte
}

func handleOf(env fence.Envelope) string { return fmt.Sprintf("of-%s-%d", env.RunID, env.Generation) }

func (c *contents) IssueContents(ctx context.Context, env fence.Envelope, sums [][sha256.Size]byte) (string, error) {
	c.mu.Lock()
	c.asked = append(c.asked, issued{env, sums})
	c.mu.Unlock()
	if c.fail != nil {
		if err := c.fail(ctx); err != nil {
			return "", err
		}
	}
	return handleOf(env), nil
}

func newWorldOfFiles(t *testing.T) (*world, *contents) {
	t.Helper()
	c := &contents{}
	w := newWorldWith(t, func(cfg *lease.Config) { cfg.Contents = c })
	w.agent.Skills = []agentfiles.File{named("s/SKILL.md", "skill"), named("s/a", "same")}
	w.agent.Files = []agentfiles.File{named("b", "same"), named("c", "file")}
	return w, c
}

func named(path, content string) agentfiles.File {
	sum := sha256.Sum256([]byte(content))
	return agentfiles.File{Path: path, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content)), MIMEType: "text/plain"}
}

func manifest(path, handle, content string) worker.ManifestFile {
	return worker.ManifestFile{Path: path, Handle: handle, Size: uint64(len(content)), SHA256: sha256.Sum256([]byte(content)), MIMEType: "text/plain"}
}

// A worker is bound with what its agent has behind one handle of its own run, which its
// capability lists; a worker that is bound is given none again.
func TestAWorkerIsBoundWithTheFilesOfItsAgent(t *testing.T) {
	w, c := newWorldOfFiles(t)
	req := w.run(t)
	w.acquire(t, req)
	h := handleOf(req.Envelope)
	b := w.workers.binds()
	if len(b) != 1 ||
		!reflect.DeepEqual(b[0].Skills, []worker.ManifestFile{manifest("s/SKILL.md", h+".0", "skill"), manifest("s/a", h+".1", "same")}) ||
		!reflect.DeepEqual(b[0].Files, []worker.ManifestFile{manifest("b", h+".1", "same"), manifest("c", h+".2", "file")}) {
		t.Errorf("bound with %+v", b)
	}
	if sums := [][sha256.Size]byte{sha256.Sum256([]byte("skill")), sha256.Sum256([]byte("same")), sha256.Sum256([]byte("file"))}; len(c.asked) != 1 || !slices.Equal(c.asked[0].sums, sums) {
		t.Errorf("asked for %+v", c.asked)
	}
	listed := func(n int) (out []string) {
		for _, s := range w.minter.asked[n].scopes {
			if s.Audience == capability.FileBroker {
				out = append(out, s.Handles...)
			}
		}
		return out
	}
	if got := listed(0); !slices.Equal(got, []string{h}) {
		t.Errorf("the capability lists %q", got)
	}
	w.end(t, req)
	w.acquire(t, w.run(t))
	if len(c.asked) != 1 || len(listed(1)) != 0 {
		t.Errorf("the next run asked for %+v, and its capability lists %q", c.asked, listed(1))
	}
}

// The next generation has handles of its own; a bind that is sent again, also by another
// replica, asks for the same.
func TestFilesOfTheNextGenerationAndOfTheSameBind(t *testing.T) {
	w, c := newWorldOfFiles(t)
	lost := true
	w.workers.bind = func(context.Context, string) error {
		if lost {
			lost = false
			return fault.New(fault.SandboxNotReady, "test")
		}
		return nil
	}
	req := w.run(t)
	w.acquire(t, req)
	if len(c.asked) != 2 || c.asked[0].env.Generation != 1 || c.asked[1].env.Generation != 2 || c.asked[0].env.RunID != c.asked[1].env.RunID || !slices.Equal(c.asked[0].sums, c.asked[1].sums) {
		t.Errorf("asked for %+v", c.asked)
	}
	next := req.Envelope
	next.Generation = 2
	if b := w.workers.binds(); len(b) != 1 || b[0].Skills[0].Handle != handleOf(next)+".0" {
		t.Errorf("bound with %+v", b)
	}
}

// Without the file broker a run ends in time, with a code that says so, and no sandbox is
// used up for it.
func TestWithoutTheFileBrokerNoWorkerIsBound(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(ctx context.Context) error
		code fault.Code
	}{
		"it is away": {func(context.Context) error {
			return fault.Wrap(errors.New("refused"), fault.DependencyUnavailable, "test")
		}, fault.DependencyUnavailable},
		"it is deaf":     {func(ctx context.Context) error { <-ctx.Done(); return fault.From(ctx.Err(), "test") }, fault.DependencyUnavailable},
		"a file is gone": {func(context.Context) error { return fault.New(fault.NotFound, "test") }, fault.PersistenceFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, files := newWorldOfFiles(t)
				files.fail = c.fail
				began := time.Now()
				w.refused(t, w.run(t), c.code)
				if took := time.Since(began); took > time.Minute {
					t.Errorf("took %v", took)
				}
				if len(w.workers.binds()) > 0 || len(w.provider.generations()) != 1 || w.workers.unclosed() != 0 {
					t.Errorf("bound %d workers, of generations %v, %d unclosed", len(w.workers.binds()), w.provider.generations(), w.workers.unclosed())
				}
			})
		})
	}
}
