package session

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/middleware"
)

// shelf has the contents of read handles.
type shelf struct {
	outside

	contents map[string]string
}

func (s shelf) Read(_ context.Context, f harness.File, maxBytes int) ([]byte, error) {
	text, ok := s.contents[f.Handle]
	if !ok || len(text) > maxBytes {
		return nil, fault.New(fault.HandleExpired, "test")
	}
	return []byte(text), nil
}

func file(path, handle, content string) manifest.File {
	return manifest.File{Path: path, Handle: handle, Size: uint64(len(content)), SHA256: sha256.Sum256([]byte(content)), MIMEType: "text/plain"}
}

// equipped is a worker with a workspace and a shelf, and a bind with manifests.
func equipped(t *testing.T) (*worker, Bind, string) {
	t.Helper()
	workspace := t.TempDir()
	w := newWorker(t, func(c *Config) { c.Workspace = workspace })
	w.connector.more = harness.Facades{Files: shelf{contents: map[string]string{"h1": "a skill", "h2": "a file"}}}
	b := right()
	b.Manifests = manifest.Manifests{Skills: []manifest.File{file("pdf/SKILL.md", "h1", "a skill")}, Files: []manifest.File{file("in.txt", "h2", "a file")}}
	return w, b, workspace
}

func entries(t *testing.T, folder string) string {
	t.Helper()
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// Manifests are there before the adapter is built, which is told of them, and go
// with the worker.
func TestManifests(t *testing.T) {
	w, b, workspace := equipped(t)
	var told []harness.Materialized
	w.adapter.initialize = func(_ context.Context, c harness.Construction) error {
		told = c.Manifest
		_, err := os.ReadFile(filepath.Join(workspace, "skills", "pdf", "SKILL.md"))
		return err
	}
	w.bind(t, b)
	want := []harness.Materialized{
		{Path: "skills/pdf/SKILL.md", MIMEType: "text/plain", Size: 7}, {Path: "files/in.txt", MIMEType: "text/plain", Size: 6},
	}
	if len(told) != 2 || told[0] != want[0] || told[1] != want[1] {
		t.Errorf("the adapter was told %+v", told)
	}
	if got := w.connector.tokens; len(got) != 1 || got[0].Token != "bound" {
		t.Errorf("they were read with %v", got)
	}
	r, err := w.Start(t.Context(), envelope("run-1"), turn("run-1", "hi"), nil) // the tokens are the run's all the same
	if err != nil {
		t.Fatal(err)
	}
	read(t, r)
	if err := w.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, workspace); got != "" {
		t.Errorf("%s was left behind", got)
	}
}

// A bind that fails leaves the worker unbound and its workspace clean.
func TestManifestsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*worker, *Bind)
		code   fault.Code
	}{
		"a handle that has expired": {func(_ *worker, b *Bind) { b.Manifests.Files[0].Handle = "h3" }, fault.HandleExpired},
		"another content":           {func(_ *worker, b *Bind) { b.Manifests.Files[0].SHA256[0]++ }, fault.PersistenceFailed},
		"a path that leads out":     {func(_ *worker, b *Bind) { b.Manifests.Files[0].Path = "../x" }, fault.InvalidRequest},
		"no workspace":              {func(w *worker, _ *Bind) { w.cfg.Workspace = "" }, fault.SandboxNotReady},
		"no facades":                {func(w *worker, _ *Bind) { w.connector.err = fault.New(fault.Internal, "test") }, fault.Internal},
		"the adapter": {func(w *worker, _ *Bind) {
			w.adapter.initialize = func(context.Context, harness.Construction) error {
				return fault.New(fault.HarnessOptionsInvalid, "test")
			}
		}, fault.HarnessOptionsInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			w, b, workspace := equipped(t)
			c.change(w, &b)
			wantCode(t, w.Bind(t.Context(), b, w.connect), c.code)
			if got := entries(t, workspace); got != "" {
				t.Errorf("%s was left behind", got)
			}
			if w.Ready(t.Context()).Bound {
				t.Error("it is bound")
			}
			w.connector.err, w.adapter.initialize, w.cfg.Workspace = nil, nil, workspace
			_, again, _ := equipped(t)
			w.bind(t, again)
			if got := entries(t, workspace); got != "files skills" {
				t.Errorf("there is %s", got)
			}
		})
	}
}

// A policy that cannot be applied, a contract that is another, and a harness that
// needs a secret inside: none is bound.
func TestBindIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*worker, *Bind)
		code   fault.Code
		detail string
	}{
		"an unknown step": {func(_ *worker, b *Bind) {
			b.Middleware = []middleware.Step{{Name: "redact", Options: []byte(`{"patterns":["bearer"]}`)}, {Name: "magic"}}
		}, fault.HarnessOptionsInvalid, "middleware[1].name"},
		"an unknown option": {func(_ *worker, b *Bind) {
			b.Middleware = []middleware.Step{{Name: "tool_call_limit", Options: []byte(`{"max":1,"per":"day"}`)}}
		}, fault.HarnessOptionsInvalid, "middleware[0].options"},
		"another contract": {func(_ *worker, b *Bind) { b.ContractVersion = 2 }, fault.WorkerMismatch, "contract_version"},
		"a raw credential": {func(w *worker, _ *Bind) {
			w.adapter.rawCredential = "it signs its own requests"
			w.desc = w.adapter.Descriptor()
		}, fault.HarnessOptionsInvalid, "agent.harness: it needs a raw credential inside the sandbox, which no worker gets: it signs"},
		"a schema that leads out": {func(_ *worker, b *Bind) {
			b.Construction.Tools = []harness.Tool{{ID: "a.b", InputSchema: []byte(`{"$ref":"https://example.org/x.json"}`)}}
		}, fault.InvalidRequest, "tools[].input_schema"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t)
			b := right()
			c.change(w, &b)
			connected := false
			err := w.Bind(t.Context(), b, func() (Connector, error) { connected = true; return w.connector, nil })
			wantCode(t, err, c.code)
			if f := fault.From(err, ""); f == nil || !strings.HasPrefix(f.Detail(), c.detail) {
				t.Errorf("the detail is %v", err)
			}
			if connected || w.adapter.initialized.Load() != 0 || w.Ready(t.Context()).Bound {
				t.Error("something was built")
			}
		})
	}
	w := newWorker(t)
	b := right()
	b.ContractVersion = harness.ContractVersion
	w.bind(t, b)
}

// The steps of a bind stand around every run of the worker, in their order, and
// what they refuse is no effect.
func TestMiddlewareOfABind(t *testing.T) {
	w := newWorker(t)
	b := right()
	b.Middleware = []middleware.Step{
		{Name: "tool_call_limit", Options: []byte(`{"max":1}`)}, {Name: "redact", Options: []byte(`{"patterns":["bearer"]}`)},
	}
	w.bind(t, b)
	w.connector.more = harness.Facades{Tools: answering{`"Bearer abcdefghijkl"`}}
	for _, run := range []string{"run-1", "run-2"} {
		var results []string
		var errs []error
		w.adapter.play(func(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
			for _, id := range []string{"a", "b"} {
				r, err := f.Tools.Call(ctx, harness.ToolCall{CallID: id, ToolID: "fs.read"})
				results, errs = append(results, string(r.Result)), append(errs, err)
			}
			return says("x")(ctx, in, f, emit)
		})
		read(t, w.start(t, run))
		if results[0] != `"[redacted]"` || errs[0] != nil || !fault.Is(errs[1], fault.ToolDenied) {
			t.Errorf("%s: %q, %v", run, results, errs)
		}
	}
	w.connector.more = harness.Facades{Tools: answering{`1`}}
	w.adapter.play(func(ctx context.Context, _ harness.Turn, f harness.Facades, _ harness.Emitter) (harness.Result, error) {
		_, first := f.Tools.Call(ctx, harness.ToolCall{CallID: "a", ToolID: "fs.read"})
		_, second := f.Tools.Call(ctx, harness.ToolCall{CallID: "b", ToolID: "fs.read"})
		return harness.Result{}, errors.Join(first, second)
	})
	want := event.SideEffectsKnown // the first was made; the second never left
	if got, ok := ends(t, w.start(t, "run-3")).(event.RunError); !ok || got.Code != string(fault.ToolDenied) || got.SideEffectStatus != want {
		t.Errorf("the run ended by %+v", got)
	}
}

// answering is a broker that gives every call the same result.
type answering struct{ result string }

func (a answering) Call(context.Context, harness.ToolCall) (harness.ToolResult, error) {
	return harness.ToolResult{Result: json.RawMessage(a.result)}, nil
}
