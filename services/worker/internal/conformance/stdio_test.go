package conformance_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/conformance"
	"cofferdam.dev/services/worker/internal/harness"
	worlds "cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/loopback"
	"cofferdam.dev/services/worker/internal/stdio"
)

// A program that does all that the line protocol can carry, behind a real runner:
// what the adapter claims is what was seen of it.
func TestStdio(t *testing.T) {
	t.Parallel()
	command, behind := build(t, "lineprogram"), &runners{t: t}
	conformance.Run(t, conformance.Setup{
		New: func(t *testing.T, workspace string, logger *slog.Logger) harness.Adapter {
			return hosted(t, workspace, logger, behind.world(t), nil, func(p *stdio.Preset) { p.Command = command })
		},
		Phrase: conformance.Script,
		Unsupported: map[string]string{
			"model error":      "this program asks no model; the Python example does",
			"truncated stream": "this program asks no model; the Python example does",
		},
	})
}

// The example that ships, as it ships: a second program for the adapter above.
func TestStdioPythonExample(t *testing.T) {
	t.Parallel()
	const folder = "../../../../examples/python-agent"
	code, err := os.ReadFile(filepath.Join(folder, "agent.py"))
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(forEverybody(t), "agent.py")
	if err := os.WriteFile(script, code, 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "preset.json"))
	if err != nil {
		t.Fatal(err)
	}
	unsupported := map[string]string{}
	for _, name := range []string{"reasoning", "usage", "memory records", "files", "skill", "subagent", "form", "dismissed form"} {
		unsupported[name] = "the example leaves it out to stay short"
	}
	behind := &runners{t: t}
	conformance.Run(t, conformance.Setup{
		New: func(t *testing.T, workspace string, logger *slog.Logger) harness.Adapter {
			return hosted(t, workspace, logger, behind.world(t), text, func(p *stdio.Preset) { p.Args[len(p.Args)-1] = script })
		},
		Phrase:      func(i conformance.Intent) string { return conformance.DemoLines(i, conformance.Dialect{}) },
		Unsupported: unsupported, Over: []string{conformance.HTTP},
	})
}

// hosted is the adapter in a world, with the endpoint that programs have in a
// worker.
func hosted(t *testing.T, workspace string, logger *slog.Logger, world worlds.World, preset []byte, change func(*stdio.Preset)) harness.Adapter {
	t.Helper()
	if preset == nil {
		preset = []byte(`{"command":"x"}`)
	}
	p, err := stdio.ParsePreset(preset)
	if err != nil {
		t.Fatal(err)
	}
	change(&p)
	server, err := loopback.New(t.Context(), loopback.Config{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	a, err := stdio.New(stdio.Config{World: world, Preset: p, Workspace: workspace, Endpoint: endpoint{server}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// endpoint joins the worker's loopback endpoints to the adapter.
type endpoint struct{ server *loopback.Server }

// Open implements stdio.Endpoint.
func (e endpoint) Open(ctx context.Context, m harness.Model, l harness.Limits) (stdio.Access, error) {
	at := e.server.Renew()
	run, err := e.server.Begin(ctx, loopback.RunConfig{Tag: "stdio", Model: m, Limits: l})
	if err != nil {
		return stdio.Access{}, err
	}
	return stdio.Access{BaseURL: strings.TrimSuffix(at.ModelBaseURLV1, "/"), RootURL: at.ModelBaseURL, Key: at.ModelKey, Close: run.Close}, nil
}
