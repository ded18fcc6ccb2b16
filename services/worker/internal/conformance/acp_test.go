package conformance_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/acp"
	"cofferdam.dev/services/worker/internal/conformance"
	"cofferdam.dev/services/worker/internal/harness"
	worlds "cofferdam.dev/services/worker/internal/hosted"
)

// An agent that asks before each call, behind a real runner: it gets its model and
// its tools from the worker's endpoints and from nowhere else.
func TestACP(t *testing.T) {
	t.Parallel()
	command, behind := build(t, "acpagent"), &runners{t: t}
	preset := acp.Preset{
		Name: "conformance", MadeFor: []acp.Package{{NPM: "none", Version: "1"}}, Command: command,
		Env:        map[string]string{"MODEL_URL": "${MODEL_BASE_URL_V1}", "MODEL_KEY": "${MODEL_KEY}", "MODEL": "${MODEL}"},
		HomeFiles:  map[string]json.RawMessage{"config.json": json.RawMessage(`{"model":"${MODEL}"}`)},
		PromptFile: "AGENTS.md", ModelWire: harness.WireOpenAIChat, MCP: acp.MCPHTTP, Images: true, State: worlds.Paths{Include: []string{"sessions"}, Exclude: []string{}},
		Permission: acp.PermissionAsk, GraceMS: 1000,
	}
	if err := preset.Validate(); err != nil {
		t.Fatal(err)
	}
	dialect := conformance.Dialect{
		Read: func(name string) string { return fmt.Sprintf(`look {"file":%q}`, name) },
		File: func(name string) string {
			if strings.HasSuffix(name, ".png") {
				return "" // the model is shown it
			}
			return fmt.Sprintf(`look {"file":%q}`, name)
		},
	}
	conformance.Run(t, conformance.Setup{
		New: func(t *testing.T, workspace string, logger *slog.Logger) harness.Adapter {
			return acp.New(acp.Config{World: behind.world(t), Preset: preset, Workspace: workspace, Logger: logger})
		},
		Phrase: func(i conformance.Intent) string { return conformance.DemoLines(i, dialect) },
		Unsupported: map[string]string{
			"memory records": "an agent program has no memory tools of the worker",
			"subagent":       "an agent's own subagents are not told apart in ACP",
			"form":           "ACP has no stable way to ask for a form",
			"dismissed form": "ACP has no stable way to ask for a form",
		},
	})
}
