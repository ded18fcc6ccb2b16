package acp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

// MaxPresetBytes bounds a preset file.
const MaxPresetBytes = 256 << 10

// Preset is an operator's configuration of one agent program. It holds no
// secret: what it says ends up in the program's world.
type Preset struct {
	// Name is part of the codec of the thread state: state of one agent is never
	// given to another. ^[a-z][a-z0-9_]{1,31}$.
	Name string `json:"name"`
	// MadeFor says which packages the preset was tried with. It decides nothing.
	MadeFor []Package `json:"made_for"`
	// Command and Args start the agent with ACP on its standard streams. Command is
	// absolute, or looked up in the world's PATH.
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// Env is all of the agent's environment but for what the world sets: HOME,
	// TMPDIR, PATH and USER. Values may use the variables.
	Env map[string]string `json:"env,omitempty"`
	// HomeFiles are written before each start, by paths relative to the agent's
	// home: a string is the text of a file, anything else its JSON. They may use
	// the variables.
	HomeFiles map[string]json.RawMessage `json:"home_files,omitempty"`
	// PromptFile is where the agent reads its instructions from, relative to its
	// home; "" puts them in front of the first message.
	PromptFile string `json:"prompt_file,omitempty"`
	// ModelWire that the agent speaks.
	ModelWire harness.Wire `json:"model_wire"`
	// MCP is "http" for an agent that takes such a server with its session, and
	// "none" for one that does not.
	MCP MCP `json:"mcp"`
	// Mode of the session, set after it was made or loaded; "" leaves it.
	Mode string `json:"mode,omitempty"`
	// State are the files of the agent's home that a session is loaded from.
	State hosted.Paths `json:"state"`
	// Permission says whether a person is asked for the agent's own tools. "allow"
	// lets each of them run: the sandbox is what bounds them.
	Permission Permission `json:"permission"`
	// StartupMS bounds the time from the start to a session, in milliseconds;
	// default 30,000, at most 300,000.
	StartupMS int `json:"startup_ms,omitempty"`
	// GraceMS is how long the agent has to end by itself before it is killed, and
	// again to confirm a cancel; default 2,000, at most 30,000.
	GraceMS int `json:"grace_ms,omitempty"`
	// DropText are beginnings of chunks that are no part of the answer.
	DropText []string `json:"drop_text,omitempty"`
	// LateReplay: the agent answers session/load first and replays afterwards.
	LateReplay bool `json:"late_replay,omitempty"`
	// LoadNextMinute: a session cannot be loaded within the minute that it was made
	// in.
	LoadNextMinute bool `json:"load_next_minute,omitempty"`
	// SlashPrefix is put in front of a message that begins with "/", which the
	// agent would take for a command of its own.
	SlashPrefix string `json:"slash_prefix,omitempty"`
	// Images and Embedded let files travel in the prompt where the agent says that
	// it takes them; otherwise they are put into the workspace.
	Images   bool `json:"images,omitempty"`
	Embedded bool `json:"embedded,omitempty"`
}

// Package of a registry that has an agent in it.
type Package struct {
	NPM     string `json:"npm"`
	Version string `json:"version"`
}

// MCP is how an agent gets its tools.
type MCP string

// The ways of MCP.
const (
	MCPHTTP MCP = "http"
	MCPNone MCP = "none"
)

// Permission is what is done about the agent's own tools.
type Permission string

// The answers to an agent's questions.
const (
	PermissionAllow Permission = "allow"
	PermissionAsk   Permission = "ask"
)

// Bounds of a preset.
const (
	defaultStartupMS, maxStartupMS = 30_000, 300_000
	defaultGraceMS, maxGraceMS     = 2_000, 30_000
	maxEntries                     = 64
	maxDropText                    = 16
)

// DecodePreset reads a preset file. Unknown and doubled fields are refused; the
// error names everything that is wrong.
func DecodePreset(r io.Reader) (Preset, error) {
	var p Preset
	err := strictjson.Decode(r, &p, strictjson.Options{MaxBytes: MaxPresetBytes, MaxDepth: 16, RequireFields: true})
	if err != nil {
		return Preset{}, fmt.Errorf("preset: %w", err)
	}
	if err := p.Validate(); err != nil {
		return Preset{}, fmt.Errorf("preset: %w", err)
	}
	return p, nil
}

var (
	presetName = regexp.MustCompile(`^[a-z][a-z0-9_]{1,31}$`)
	envName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// Validate reports everything that is wrong.
func (p *Preset) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !presetName.MatchString(p.Name) {
		bad("name: small letters, digits and _, 2 to 32 characters")
	}
	if len(p.MadeFor) == 0 {
		bad("made_for: name the packages that the preset was tried with")
	}
	if p.Command == "" || strings.Contains(p.Command, "/") && !path.IsAbs(p.Command) {
		bad("command: an absolute path, or a name without slashes")
	}
	wires := []harness.Wire{harness.WireOpenAIChat, harness.WireOpenAIResponses, harness.WireAnthropicMessages, harness.WireGemini}
	if !slices.Contains(wires, p.ModelWire) {
		bad("model_wire: one of %v", wires)
	}
	if p.MCP != MCPHTTP && p.MCP != MCPNone {
		bad("mcp: http or none")
	}
	if p.Permission != PermissionAllow && p.Permission != PermissionAsk {
		bad("permission: allow or ask")
	}
	if p.StartupMS < 0 || p.StartupMS > maxStartupMS {
		bad("startup_ms: 0 to %d", maxStartupMS)
	}
	if p.GraceMS < 0 || p.GraceMS > maxGraceMS {
		bad("grace_ms: 0 to %d", maxGraceMS)
	}
	if len(p.Args) > maxEntries || len(p.Env) > maxEntries || len(p.HomeFiles) > maxEntries || len(p.DropText) > maxDropText {
		bad("args, env, home_files: at most %d entries; drop_text: at most %d", maxEntries, maxDropText)
	}
	if slices.Contains(p.DropText, "") {
		bad("drop_text: an empty beginning would drop everything")
	}
	if strings.HasPrefix(strings.TrimSpace(p.SlashPrefix), "/") {
		bad("slash_prefix: must not begin with a slash itself")
	}
	return errors.Join(append(errs, p.validateFiles(), p.validateState())...)
}

func (p *Preset) validateFiles() error {
	var errs []error
	for i, arg := range p.Args {
		errs = append(errs, unexpandable(fmt.Sprintf("args.%d", i), arg))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !envName.MatchString(name) {
			errs = append(errs, fmt.Errorf("env: %q is no name of a variable", name))
		}
		errs = append(errs, unexpandable("env."+name, p.Env[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(p.HomeFiles)) {
		if !relative(name) {
			errs = append(errs, fmt.Errorf("home_files: %q is no path below the home", name))
		}
		content, err := fileText(p.HomeFiles[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("home_files: %q: %w", name, err))
		}
		errs = append(errs, unexpandable("home_files."+name, content))
	}
	if p.PromptFile != "" && !relative(p.PromptFile) {
		errs = append(errs, errors.New("prompt_file: a path below the home"))
	}
	return errors.Join(errs...)
}

func (p *Preset) validateState() error {
	var errs []error
	if len(p.State.Include) == 0 {
		errs = append(errs, errors.New("state.include: name the files of a session"))
	}
	for _, pattern := range slices.Concat(p.State.Include, p.State.Exclude) {
		if _, err := path.Match(pattern, "x"); err != nil || !relative(pattern) {
			errs = append(errs, fmt.Errorf("state: %q is no pattern below the home", pattern))
		}
	}
	return errors.Join(errs...)
}

// relative tells whether a path stays below the home.
func relative(name string) bool {
	return name != "" && name != "." && path.Clean(name) == name && !path.IsAbs(name) && name != ".." && !strings.HasPrefix(name, "../")
}

func (p *Preset) startup() time.Duration { return millis(p.StartupMS, defaultStartupMS) }

func (p *Preset) grace() time.Duration { return millis(p.GraceMS, defaultGraceMS) }

func millis(set, otherwise int) time.Duration {
	if set == 0 {
		set = otherwise
	}
	return time.Duration(set) * time.Millisecond
}

// usesMCP tells whether the agent gets the tools at all.
func (p *Preset) usesMCP() bool {
	if p.MCP == MCPHTTP {
		return true
	}
	for _, content := range p.HomeFiles {
		if strings.Contains(string(content), "${"+varMCPURL+"}") {
			return true
		}
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(p.Env)), func(v string) bool { return strings.Contains(v, "${"+varMCPURL+"}") })
}
