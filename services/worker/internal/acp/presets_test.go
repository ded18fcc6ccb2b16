package acp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/acp"
	"cofferdam.dev/services/worker/internal/harness"
)

const presets = "../../../../deploy/presets"

func preset(t *testing.T, name string) acp.Preset {
	t.Helper()
	f, err := os.Open(filepath.Join(presets, name+".json"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	p, err := acp.DecodePreset(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

// Each shipped preset is the one that the agent was tried with, traps included.
func TestShippedPresets(t *testing.T) {
	for name, tc := range map[string]struct {
		made []acp.Package
		wire harness.Wire
		mcp  acp.MCP
		// has stands somewhere in the preset, and must.
		has []string
	}{
		"opencode": {[]acp.Package{{NPM: "opencode-ai", Version: "1.18.33"}}, harness.WireOpenAIChat, acp.MCPHTTP, []string{`"permission":{"*":"ask"}`, `"enabled_providers":["cofferdam"]`, "OPENCODE_DISABLE_MODELS_FETCH", `"small_model":"cofferdam/${MODEL}"`, `"autoupdate":false`, `"share":"disabled"`}},
		"kilo":     {[]acp.Package{{NPM: "@kilocode/cli", Version: "7.7.7"}}, harness.WireOpenAIChat, acp.MCPHTTP, []string{`"permission":{"*":"ask"}`, "KILO_TELEMETRY_LEVEL", ".config/kilo/opencode.json"}},
		"claude":   {[]acp.Package{{NPM: "@agentclientprotocol/claude-agent-acp", Version: "0.101.0"}}, harness.WireAnthropicMessages, acp.MCPHTTP, []string{`"mode":"default"`, `"ENABLE_TOOL_SEARCH":"false"`, "CLAUDE_CODE_TMPDIR", `"CLAUDE_CODE_MAX_RETRIES":"1"`, `"ANTHROPIC_BASE_URL":"${MODEL_BASE_URL}"`}},
		"gemini":   {[]acp.Package{{NPM: "@google/gemini-cli", Version: "0.61.0"}}, harness.WireGemini, acp.MCPHTTP, []string{`"GEMINI_CLI_TRUST_WORKSPACE":"true"`, `"late_replay":true`, `"load_next_minute":true`, "TMPDIR", `"GOOGLE_GEMINI_BASE_URL":"${MODEL_BASE_URL}"`, `"usageStatisticsEnabled":false`}},
		"qwen":     {[]acp.Package{{NPM: "@qwen-code/qwen-code", Version: "0.24.4"}}, harness.WireOpenAIChat, acp.MCPHTTP, []string{`"toolSearch":{"enabled":false}`, `"approvalMode":"default"`, `"enableFollowupSuggestions":false`}},
		"copilot":  {[]acp.Package{{NPM: "@github/copilot", Version: "1.0.102"}}, harness.WireOpenAIChat, acp.MCPHTTP, []string{`"COPILOT_OFFLINE":"true"`, `"--no-auto-update"`, "TMPDIR"}},
		"codex":    {[]acp.Package{{NPM: "@agentclientprotocol/codex-acp", Version: "2.6.0"}}, harness.WireOpenAIResponses, acp.MCPHTTP, []string{`"INITIAL_AGENT_MODE":"agent-full-access"`, "Model metadata for `", "approval_policy = \\\"on-request\\\"", "wire_api = \\\"responses\\\""}},
		"pi":       {[]acp.Package{{NPM: "pi-acp", Version: "0.0.34"}, {NPM: "@earendil-works/pi-coding-agent", Version: "1.6.0"}}, harness.WireOpenAIChat, acp.MCPNone, []string{`"quietStartup":true`, `"PI_OFFLINE":"1"`, "${MCP_URL}"}},
		"cline":    {[]acp.Package{{NPM: "cline", Version: "3.0.65"}}, harness.WireOpenAIChat, acp.MCPNone, []string{`"CLINE_SESSION_BACKEND_MODE":"local"`, `"CLINE_PROVIDER":"openai-compatible"`, `"CLINE_API_KEY":"${MODEL_KEY}"`}},
	} {
		t.Run(name, func(t *testing.T) {
			p := preset(t, name)
			if p.Name != name || !slices.Equal(p.MadeFor, tc.made) || p.ModelWire != tc.wire || p.MCP != tc.mcp {
				t.Errorf("%s is %+v for %+v", name, p.Name, p.MadeFor)
			}
			if p.SlashPrefix == "" || p.Permission != acp.PermissionAsk {
				t.Error("a message could be a command, or nobody is asked")
			}
			raw, err := os.ReadFile(filepath.Join(presets, name+".json"))
			must(t, err)
			text := compact(t, raw)
			for _, has := range tc.has {
				if !strings.Contains(text, has) {
					t.Errorf("%s is not in it", has)
				}
			}
			// It can be offered to a worker.
			a := acp.New(acp.Config{World: &world{}, Preset: p})
			c := harness.Construction{Model: harness.ModelConfig{Wire: tc.wire}}
			if _, err := a.Initialize(t.Context(), c); err != nil {
				t.Error(err)
			}
			for _, key := range harness.CapabilityKeys() {
				if a.Descriptor().Capabilities[key].Level == "" {
					t.Errorf("no level for %s", key)
				}
			}
			c.Tools = []harness.Tool{{ID: "a.b", OfferedName: "a_b", InputSchema: json.RawMessage(`{}`)}}
			if _, err := a.Initialize(t.Context(), c); (err != nil) != (name == "cline") {
				t.Errorf("with a tool: %v", err)
			}
			c.Tools, c.Model.Wire = nil, "another"
			if _, err := a.Initialize(t.Context(), c); err == nil {
				t.Error("a model of another wire was taken")
			}
			c.Model.Wire, c.Options = tc.wire, json.RawMessage(`{"x":1}`)
			if _, err := a.Initialize(t.Context(), c); err == nil {
				t.Error("an unknown option was taken")
			}
		})
	}
	names, err := filepath.Glob(filepath.Join(presets, "*.json"))
	must(t, err)
	if len(names) != 9 {
		t.Errorf("presets %v", names)
	}
}

func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var b strings.Builder
	inString, escaped := false, false
	for _, c := range string(raw) {
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case !inString && strings.ContainsRune(" \n\t", c):
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

func TestPresetsThatAreRefused(t *testing.T) {
	whole := `{"name":"x1","made_for":[{"npm":"a","version":"1"}],"command":"x","model_wire":"gemini","mcp":"none","state":{"include":["a"],"exclude":[]},"permission":"ask"%s}`
	with := func(more string) string { return strings.Replace(whole, "%s", more, 1) }
	if _, err := acp.DecodePreset(strings.NewReader(with(""))); err != nil {
		t.Fatalf("the least preset: %v", err)
	}
	for name, text := range map[string]string{
		"nothing":                 "",
		"an unknown field":        with(`,"x":1`),
		"a doubled field":         with(`,"name":"y2"`),
		"a field of another case": with(`,"Name":"y2"`),
		"a name":                  strings.Replace(with(""), `"x1"`, `"X 1"`, 1),
		"no packages":             strings.Replace(with(""), `[{"npm":"a","version":"1"}]`, `[]`, 1),
		"a relative command":      strings.Replace(with(""), `"command":"x"`, `"command":"./x"`, 1),
		"no command":              strings.Replace(with(""), `"command":"x"`, `"command":""`, 1),
		"another wire":            strings.Replace(with(""), "gemini", "grpc", 1),
		"another way of MCP":      strings.Replace(with(""), `"none"`, `"stdio"`, 1),
		"another permission":      strings.Replace(with(""), `"ask"`, `"always"`, 1),
		"another variable":        with(`,"env":{"A":"${HOME}"}`),
		"half a variable":         with(`,"env":{"A":"${MODEL"}`),
		"a variable in a file":    with(`,"home_files":{"a":{"b":["${SECRET}"]}}`),
		"a name of a variable":    with(`,"env":{"A=B":"x"}`),
		"a file outside":          with(`,"home_files":{"../a":"x"}`),
		"an absolute file":        with(`,"home_files":{"/etc/passwd":"x"}`),
		"a file of nothing":       with(`,"home_files":{"a":null}`),
		"a prompt outside":        with(`,"prompt_file":"../a"`),
		"no state":                strings.Replace(with(""), `"include":["a"]`, `"include":[]`, 1),
		"state outside":           strings.Replace(with(""), `"include":["a"]`, `"include":["../a"]`, 1),
		"a broken pattern":        strings.Replace(with(""), `"include":["a"]`, `"include":["[a"]`, 1),
		"all text dropped":        with(`,"drop_text":[""]`),
		"a slash before a slash":  with(`,"slash_prefix":" /x"`),
		"a long start":            with(`,"startup_ms":300001`),
		"a negative grace":        with(`,"grace_ms":-1`),
		"too large":               with(`,"prompt_file":"` + strings.Repeat("a", acp.MaxPresetBytes) + `"`),
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := acp.DecodePreset(strings.NewReader(text)); err == nil {
				t.Errorf("taken: %+v", p)
			}
		})
	}
}
