package agents

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// presets are the operator's, as they are shipped.
	presets = "../../deploy/presets"
	// careful follows the name of an agent whose tool calls all need an approval.
	careful = "-careful"
	// startupMS is how long an agent has until it has a session, in milliseconds:
	// tests run on machines that do something else too.
	startupMS = 120_000
)

// configure writes what a stack with all agents is started with.
func configure(folder string) (flags []string, err error) {
	var agents, profiles []any
	for _, a := range theAgents() {
		if there, err := a.installed(); err != nil || !there || !a.wanted() {
			if err != nil {
				return nil, err
			}
			continue
		}
		p, err := a.preset()
		if err != nil {
			return nil, fmt.Errorf("preset of %s: %w", a.name, err)
		}
		file := filepath.Join(folder, a.name+".json")
		if err := write(file, p.doc); err != nil {
			return nil, err
		}
		profiles = append(profiles, a.profile(file, p))
		agents = append(agents, a.entry(p, ""), a.entry(p, careful))
	}
	for name, doc := range map[string]any{
		"sandbox-profiles": map[string]any{"profiles": profiles},
		"agents":           map[string]any{"agents": agents},
	} {
		file := filepath.Join(folder, name+".json")
		if err := write(file, doc); err != nil {
			return nil, err
		}
		flags = append(flags, "--"+name, file)
	}
	return flags, nil
}

func write(file string, doc any) error {
	raw, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	// Workers are other users, and read their own preset.
	return os.WriteFile(file, raw, 0o644)
}

// preset is a shipped preset with the paths of this machine.
type preset struct {
	doc map[string]any
	// packages is the absolute path of the npm packages.
	packages, wire string
}

// preset changes nothing of what is shipped but where programs are found, and how
// long they may take to start.
func (a agent) preset() (p preset, err error) {
	raw, err := os.ReadFile(filepath.Join(presets, a.name+".json"))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(raw, &p.doc); err != nil {
		return p, err
	}
	if p.packages, err = filepath.Abs(a.packages()); err != nil {
		return p, err
	}
	if p.packages, err = place(p.packages); err != nil {
		return p, err
	}
	command, _ := p.doc["command"].(string)
	env, _ := p.doc["env"].(map[string]any)
	p.wire, _ = p.doc["model_wire"].(string)
	if command == "" || env == nil || p.wire == "" {
		return p, fmt.Errorf("no command, env or model_wire in %s", raw)
	}
	bin := filepath.Join(p.packages, ".bin")
	program := filepath.Join(bin, command)
	if a.program != "" {
		program = filepath.Join(p.packages, a.program)
	}
	if _, err := os.Stat(program); err != nil {
		return p, err
	}
	p.doc["command"] = program
	p.doc["startup_ms"] = startupMS
	env["PATH"] = bin + ":/usr/local/bin:/usr/bin:/bin" // node is there, for programs that are scripts of it
	return p, nil
}

// profile is the sandbox of an agent. Of the machine it sees the system's
// programs and its own packages.
func (a agent) profile(file string, p preset) map[string]any {
	return map[string]any{
		"name": a.name, "harness": "acp", "harness_config": file,
		"limits":  map[string]any{"memory_mib": a.memoryMiB},
		"program": map[string]any{"read_only_paths": []string{"/usr", "/bin", "/lib", "/lib64", p.packages}},
	}
}

// entry of the catalogue.
func (a agent) entry(p preset, suffix string) map[string]any {
	e := map[string]any{
		"agent_id": a.name + suffix, "name": a.name, "organization": "default", "harness": "acp", "adapter_version": "1.0.0",
		"model_alias": "demo", "model": map[string]any{"wire": p.wire}, "tools": []string{toolRead},
		"prompt": "You help people.", "profile": a.name,
		"limits": map[string]any{"max_model_calls": 64, "run_timeout_seconds": 150},
	}
	if suffix == careful {
		e["approve_tools"] = []string{"fs.*"}
	}
	return e
}

// The presets that are tested are those that are shipped: each agent of the table
// is at the version that its preset names.
func TestPresetsAreForTheseVersions(t *testing.T) {
	for _, a := range theAgents() {
		if there, err := a.installed(); err != nil || !there {
			t.Logf("%s is not installed (%v)", a.name, err)
			continue
		}
		var p struct {
			MadeFor []struct{ NPM, Version string } `json:"made_for"`
		}
		readJSON(t, filepath.Join(presets, a.name+".json"), &p)
		if len(p.MadeFor) == 0 {
			t.Errorf("%s: made for nothing", a.name)
		}
		for _, m := range p.MadeFor {
			name := m.NPM
			if program, _, ok := strings.Cut(a.program, "/"); ok {
				name = program
			}
			var installed struct{ Version string }
			readJSON(t, filepath.Join(a.packages(), name, "package.json"), &installed)
			if installed.Version != m.Version {
				t.Errorf("%s: %s is installed at %s, the preset is made for %s", a.name, name, installed.Version, m.Version)
			}
		}
	}
}

func readJSON(t *testing.T, file string, v any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}
