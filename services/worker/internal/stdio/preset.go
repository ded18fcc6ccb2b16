package stdio

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

// Preset is the operator's configuration of a program, as JSON. Nothing secret
// belongs in it: the program can read all of it.
type Preset struct {
	// Command is an absolute path, or a name that is looked up in the world.
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// Env is the program's environment, besides HOME, TMPDIR, PATH and USER.
	Env map[string]string `json:"env,omitempty"`
	// Files are written into its home before each start.
	Files []PresetFile `json:"files,omitempty"`
	// StartupTimeout is how long it may take to say that it is ready; 30 s, at most
	// 5 min.
	StartupTimeout Duration `json:"startup_timeout,omitempty"`
	// CancelGrace is how long it may take to end after a cancel; 1 s, at most 5 s.
	// At the deadline of a run it is never more than 1 s.
	CancelGrace Duration `json:"cancel_grace,omitempty"`
	// OptionsSchema is the JSON Schema of the agent's harness options, which are
	// passed on to the program; without one it takes none.
	OptionsSchema json.RawMessage `json:"options_schema,omitempty"`
	// Codec names the format of the program's state: another program, or another
	// version that cannot read it, has another one.
	Codec *PresetCodec `json:"codec,omitempty"`
	// Unsupported says, by capability key, what the program does not do and why: the
	// adapter claims for it what the line protocol can carry, and not that.
	Unsupported map[string]string `json:"unsupported,omitempty"`
}

// PresetFile is a text file of the program's home.
type PresetFile struct {
	// Path is relative to the home.
	Path       string `json:"path"`
	Content    string `json:"content"`
	Executable bool   `json:"executable,omitempty"`
}

// PresetCodec names a format of state.
type PresetCodec struct {
	Name    string `json:"name"`
	Version uint32 `json:"version"`
}

// Duration is a time.Duration, in JSON as text such as "10s".
type Duration time.Duration

// UnmarshalText takes what time.ParseDuration takes.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// MarshalText gives the text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

const (
	maxPreset             = 1 << 20 // bytes
	defaultStartupTimeout = 30 * time.Second
	maxStartupTimeout     = 5 * time.Minute
	defaultCancelGrace    = time.Second
	// maxCancelGrace leaves time to end everything within what a worker grants a
	// harness to stop.
	maxCancelGrace = 5 * time.Second
)

// ParsePreset decodes a preset strictly, reports everything that is wrong with
// it, and fills in what it leaves out.
func ParsePreset(text []byte) (Preset, error) {
	var p Preset
	if err := strictjson.Unmarshal(text, &p, strictjson.Options{MaxBytes: maxPreset, RequireFields: true}); err != nil {
		return Preset{}, fmt.Errorf("preset: %w", err)
	}
	if p.StartupTimeout == 0 {
		p.StartupTimeout = Duration(defaultStartupTimeout)
	}
	if p.CancelGrace == 0 {
		p.CancelGrace = Duration(defaultCancelGrace)
	}
	if p.Codec == nil {
		p.Codec = &PresetCodec{Name: "cofferdam.stdio", Version: 1}
	}
	return p, p.validate()
}

var (
	codecName = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (p *Preset) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("preset: "+format, args...)) }
	if p.Command == "" || strings.Contains(p.Command, "/") && !path.IsAbs(p.Command) {
		wrong("command: an absolute path, or a name without a slash")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !envName.MatchString(name) {
			wrong("env: %q is no name of a variable", name)
		}
	}
	for i, f := range p.Files {
		if !filepath.IsLocal(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "." {
			wrong("files.%d.path: relative to the home, without . and ..", i)
		}
	}
	if p.StartupTimeout < 0 || p.StartupTimeout > Duration(maxStartupTimeout) {
		wrong("startup_timeout: at most %s", maxStartupTimeout)
	}
	if p.CancelGrace < 0 || p.CancelGrace > Duration(maxCancelGrace) {
		wrong("cancel_grace: at most %s", maxCancelGrace)
	}
	if !codecName.MatchString(p.Codec.Name) || p.Codec.Version == 0 {
		wrong("codec: a name of [a-z0-9_.-] and a version from 1")
	}
	for _, key := range slices.Sorted(maps.Keys(p.Unsupported)) {
		if !slices.Contains(harness.CapabilityKeys(), key) || p.Unsupported[key] == "" {
			wrong("unsupported: %q is no capability of the contract, or has no reason", key)
		}
	}
	return errors.Join(errs...)
}

// noOptions is the schema of a program that takes none.
const noOptions = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false}`

func (p *Preset) optionsSchema() json.RawMessage {
	if len(p.OptionsSchema) == 0 {
		return json.RawMessage(noOptions)
	}
	return p.OptionsSchema
}

func (p *Preset) codec() harness.Codec {
	return harness.Codec{Name: p.Codec.Name, Version: p.Codec.Version}
}

// command is what the world starts.
func (p *Preset) command() hosted.Command {
	c := hosted.Command{Path: p.Command, Args: p.Args}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		c.Env = append(c.Env, name+"="+p.Env[name])
	}
	return c
}
