package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/tests/stack"
)

// ballast is the state of the test, in bytes.
const ballast = 20 << 20

// hoarder is the profile of an agent that keeps as much as it is told to.
const hoarder = "hoarder"

// hoard starts a stack whose agent follows a script.
func hoard(t *testing.T) *world {
	t.Helper()
	command := stack.Need(t)
	w := &world{}
	var err error
	if w.folder, err = os.MkdirTemp("", "cofferdam-hoard-"); err != nil { //nolint:usetesting // t.TempDir is too long for the path of a socket
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	write := func(name string, doc any) string {
		t.Helper()
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(w.folder, name)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	agents := write("agents.json", map[string]any{"agents": []any{map[string]any{
		"agent_id": stack.Agent, "version": 1, "name": hoarder, "organization": "local", "harness": "scripted", "adapter_version": "1.0.0",
		"model_alias": "demo", "profile": hoarder, "limits": map[string]any{"max_uploads": 1},
	}}})
	profiles := write("profiles.json", map[string]any{"profiles": []any{map[string]any{"name": hoarder, "harness": "scripted"}}})
	w.Stack, err = stack.Up(t.Context(), command, filepath.Join(w.folder, "data"), "--agents", agents, "--sandbox-profiles", profiles)
	if err != nil {
		t.Fatal(err)
	}
	if w.user, err = w.Client(t.Context(), stack.User); err != nil {
		t.Fatal(err)
	}
	if w.operator, err = w.OperatorClient(t.Context(), stack.Operator); err != nil {
		t.Fatal(err)
	}
	return w
}

// A conversation whose state is far larger than a message goes on in another
// worker, which has nothing but the committed head.
func TestANewWorkerHasALargeState(t *testing.T) {
	w := hoard(t)
	c := w.talk()

	first := c.tell(t, `[{"do":"remember","key":"ballast","bytes":20971520},{"do":"text","text":"it is heavy"}]`)
	if run := c.ended(t, first); run.DurableRevision != 1 {
		t.Fatalf("turn 1: %+v", run)
	}
	w.wantHead(t, 1)
	kill(t, c.worker(t, first.BindingID))
	until(t, "generation 2", func(ctx context.Context) (bool, error) {
		b, err := w.operator.Binding(ctx, first.BindingID)
		return err == nil && b.Generation == 2 && b.Ending == 0, err
	})

	second := c.tell(t, `[{"do":"recall"}]`)
	if run := c.ended(t, second); run.Generation != 2 || run.DurableRevision != 2 {
		t.Errorf("turn 2: %+v", run)
	}
	if text := second.text(t); !strings.Contains(text, "it is heavy") {
		t.Errorf("it has forgotten: %q", text)
	}
	w.wantHead(t, 2)
	w.wantLargeFile(t, c)
}

// wantLargeFile sees that a run can write a file that goes in several parts, and that
// its caller can read it.
func (w *world) wantLargeFile(t *testing.T, c *talk) {
	t.Helper()
	const begins, bytes = "it is long ", 3 << 20
	id, ok := strings.CutPrefix(c.tell(t, `[{"do":"upload","name":"long.txt","text":"`+begins+`","bytes":3145728}]`).text(t), "uploaded ")
	if !ok {
		t.Fatalf("the run said %q", id)
	}
	a, err := w.user.Do(t.Context(), http.MethodGet, "/api/v1/files/"+id, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := begins + strings.Repeat("x", bytes); a.Status != http.StatusOK || string(a.Body) != want {
		t.Errorf("status %d, %d bytes, want %d", a.Status, len(a.Body), len(want))
	}
}

// wantHead sees that so many snapshots of the whole ballast are in the object store.
func (w *world) wantHead(t *testing.T, snapshots int) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(filepath.Join(w.Data, "snapshots"), func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() >= ballast {
			found++
		}
		return err
	})
	if err != nil || found != snapshots {
		t.Errorf("%d large snapshots, want %d: %v", found, snapshots, err)
	}
}
