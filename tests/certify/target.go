package certify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
)

// target is the adapter that is tried, as its worker describes it, and the profile of
// its sandbox.
type target struct {
	HarnessID      string `json:"harness_id"`
	AdapterVersion string `json:"adapter_version"`
	Capabilities   map[string]struct {
		Level  string `json:"level"`
		Reason string `json:"reason"`
	} `json:"capabilities"`

	profile map[string]any
	// wire of the model that the preset of a hosted agent asks for; "" is the default.
	wire string
}

const defaultProfile = "certified"

// profile finds the one that is meant: by its name, or by its harness; a file with one
// alone needs neither.
func (c Config) profile() (map[string]any, error) {
	if c.Profiles == "" {
		if c.Profile != "" {
			return nil, errors.New("--profile: needs --sandbox-profiles, the file that has it")
		}
		harness := c.Harness
		if harness == "" {
			harness = "native"
		}
		if harness != "native" && harness != "scripted" {
			return nil, fmt.Errorf("--harness: %s is configured by a profile: name its file with --sandbox-profiles", harness)
		}
		return map[string]any{"name": defaultProfile, "harness": harness}, nil
	}
	raw, err := os.ReadFile(c.Profiles)
	if err != nil {
		return nil, fmt.Errorf("--sandbox-profiles: %w", err)
	}
	var doc struct {
		Profiles []map[string]any `json:"profiles"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("--sandbox-profiles: %w", err)
	}
	var found []map[string]any
	for _, p := range doc.Profiles {
		if (c.Profile == "" || p["name"] == c.Profile) && (c.Harness == "" || p["harness"] == c.Harness) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("--sandbox-profiles: %d of its %d profiles are meant, want 1: name it with --profile", len(found), len(doc.Profiles))
	}
	if path, _ := found[0]["harness_config"].(string); path != "" && !filepath.IsAbs(path) {
		return nil, fmt.Errorf("--sandbox-profiles: harness_config %s: an absolute path", path)
	}
	return found[0], nil
}

// describe asks the worker's program what it hosts.
func (c Config) describe(ctx context.Context) (target, error) {
	var t target
	profile, err := c.profile()
	if err != nil {
		return t, err
	}
	harness, _ := profile["harness"].(string)
	args := []string{"describe", "--harness", harness}
	if preset, _ := profile["harness_config"].(string); preset != "" {
		args = append(args, "--harness-config", preset)
		if t.wire, err = wireOf(preset); err != nil {
			return t, err
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(c.Command), "worker"), args...)
	var complained bytes.Buffer
	cmd.Stderr = &complained
	out, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("worker describe --harness %s: %w: %s", harness, err, complained.String())
	}
	t.profile = profile
	return t, json.Unmarshal(out, &t)
}

// wireOf is the wire that a preset names.
func wireOf(preset string) (string, error) {
	raw, err := os.ReadFile(preset)
	if err != nil {
		return "", fmt.Errorf("harness_config: %w", err)
	}
	var p struct {
		Wire string `json:"model_wire"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", fmt.Errorf("harness_config: %w", err)
	}
	return p.Wire, nil
}

// has reports whether the adapter claims a capability, and why not.
func (t target) has(key string) (bool, string) {
	switch c := t.Capabilities[key]; c.Level {
	case "native", "emulated":
		return true, ""
	case "":
		return false, "the adapter's descriptor does not name " + key
	default:
		return false, fmt.Sprintf("the adapter claims %s as %s: %s", key, c.Level, c.Reason)
	}
}

// The agents of the stack: all of the harness that is tried.
const (
	plain = "certified"
	// careful asks before it calls a tool.
	careful = "certified-careful"
	// warm has sandboxes that are kept ready.
	warm = "certified-warm"
	// short has sandboxes that do not live for long.
	short = "certified-short"
	// tight has sandboxes with little processor time.
	tight = "certified-tight"
	// hasty has runs that may not take long.
	hasty = "certified-hasty"
)

// runSeconds is how long a run of hasty may take: long enough for a program to start on a
// busy machine, and much shorter than what keeps a run busy.
const runSeconds = 20

// How long those of short live: many times as long as a turn takes, which is longer
// where a program is started first.
const (
	lifetimeSeconds       = 15
	hostedLifetimeSeconds = 60
)

func (t target) lifetime() int {
	if t.profile["harness_config"] != nil {
		return hostedLifetimeSeconds
	}
	return lifetimeSeconds
}

// agent is one of the harness that is tried.
func (t target) agent(id, profile string, more map[string]any) map[string]any {
	a := map[string]any{
		"agent_id": id, "version": 1, "name": id, "organization": "local", "harness": t.HarnessID, "adapter_version": t.AdapterVersion,
		"model_alias": "demo", "profile": profile, "tools": []string{"fs.*"},
	}
	if t.wire != "" {
		a["model"] = map[string]any{"wire": t.wire}
	}
	maps.Copy(a, more)
	return a
}

// tightCPUs is how many processors' worth of time a sandbox of tight has.
const tightCPUs = 0.2

// configure writes what the stack is started with, and gives the flags for it.
func (t target) configure(folder string) ([]string, error) {
	name, _ := t.profile["name"].(string)
	agent := func(id string, more map[string]any) map[string]any { return t.agent(id, name, more) }
	ready := maps.Clone(t.profile)
	ready["name"], ready["warm"] = warm, warmWorkers
	brief := t.limited(short, "lifetime_seconds", t.lifetime())
	slow := t.limited(tight, "cpus", tightCPUs)
	return write(folder, map[string]any{
		"agents": map[string]any{"agents": []any{
			agent(plain, nil), agent(careful, map[string]any{"approve_tools": []string{"fs.*"}}), agent(warm, map[string]any{"profile": warm}),
			agent(short, map[string]any{"profile": short}), agent(tight, map[string]any{"profile": tight}),
			agent(hasty, map[string]any{"limits": map[string]any{"run_timeout_seconds": runSeconds}}),
		}},
		"sandbox-profiles": map[string]any{"profiles": []any{t.profile, ready, brief, slow}},
	})
}

// limited is the profile under another name and with another limit.
func (t target) limited(name, limit string, value any) map[string]any {
	p := maps.Clone(t.profile)
	limits, _ := p["limits"].(map[string]any)
	if limits = maps.Clone(limits); limits == nil {
		limits = map[string]any{}
	}
	limits[limit] = value
	p["name"], p["limits"] = name, limits
	return p
}

// crowd writes what a stack with one agent alone is started with, that has n sandboxes
// ready.
func (t target) crowd(folder string, n int) ([]string, error) {
	name, _ := t.profile["name"].(string)
	profile := maps.Clone(t.profile)
	profile["warm"] = n
	return write(folder, map[string]any{
		"agents":           map[string]any{"agents": []any{t.agent(plain, name, nil)}},
		"sandbox-profiles": map[string]any{"profiles": []any{profile}},
	})
}

// write writes documents, and gives the flags that name their files.
func write(folder string, docs map[string]any) (flags []string, _ error) {
	for file, doc := range docs {
		raw, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(folder, file+".json")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			return nil, err
		}
		flags = append(flags, "--"+file, path)
	}
	return flags, nil
}
