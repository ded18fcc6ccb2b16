package catalogue

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"cofferdam.dev/pkg/strictjson"
)

// Bounds of a configuration.
const (
	maxFile        = 1 << 20
	maxServers     = 64
	maxServerTools = 256
	defaultTimeout = 30 * time.Second
	maxTimeout     = 10 * time.Minute
)

// TransportStdio is a server that is a child process.
const TransportStdio = "stdio"

// SourceFile is a credential that stands in a file.
const SourceFile = "file"

// Config is the operator's catalogue.
type Config struct {
	Servers []Server `json:"servers"`
}

// Server is one MCP server.
type Server struct {
	// Namespace is the first part of the ids of its tools.
	Namespace string `json:"namespace"`
	// Transport is "stdio".
	Transport string `json:"transport"`
	// Command is the absolute path of the program and its arguments, which any
	// user of the machine can read: no secrets.
	Command []string `json:"command"`
	// Environment is the environment of the program beside its credential. There
	// is nothing else in it. No secrets: this file is not one.
	Environment map[string]string `json:"environment,omitempty"`
	// Tools are the exact names of those that may be used.
	Tools []string `json:"tools"`
	// ReadOnly says that all of them are without effects.
	ReadOnly bool `json:"read_only,omitempty"`
	// Approval is "always" where a person is asked before each call of its tools,
	// or "never" (the default).
	Approval string `json:"approval,omitempty"`
	// ToolOptions are further properties of single tools, by name.
	ToolOptions map[string]ToolOptions `json:"tool_options,omitempty"`
	// Timeout of a call, such as "30s" (the default), at most 10m.
	Timeout string `json:"timeout,omitempty"`
	// Credential is what the server needs and the worker never sees.
	Credential *Credential `json:"credential,omitempty"`
}

// ToolOptions are what the operator vouches for. What a server says of its own
// tools is no reason to call one again.
type ToolOptions struct {
	// ReadOnly says that the tool is without effects.
	ReadOnly bool `json:"read_only,omitempty"`
	// Idempotent says that a second call with the same arguments has no further
	// effect.
	Idempotent bool `json:"idempotent,omitempty"`
	// Approval is "always" or "never"; by default it is the server's.
	Approval string `json:"approval,omitempty"`
}

// Approval policies.
const (
	ApprovalAlways = "always"
	ApprovalNever  = "never"
)

func isApproval(s string) bool { return s == "" || s == ApprovalAlways || s == ApprovalNever }

// Credential says where a credential comes from and how the server gets it.
type Credential struct {
	// Source is "file".
	Source string `json:"source"`
	// Path of the file, which is read anew at each start of the server.
	Path string `json:"path"`
	// Env is the variable that holds it in the environment of the server: that is
	// how MCP hands it to a server over stdio.
	Env string `json:"env"`
}

// Load reads and validates a catalogue.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("catalogue: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return Config{}, fmt.Errorf("catalogue: %w", err)
	}
	var c Config
	if err := strictjson.Unmarshal(raw, &c, strictjson.Options{MaxBytes: maxFile, RequireFields: true}); err != nil {
		return Config{}, fmt.Errorf("catalogue: %s: %w", path, err)
	}
	return c, c.Validate()
}

var (
	namespacePattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	toolPattern      = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,128}$`)
	variablePattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if len(c.Servers) > maxServers {
		errs = append(errs, fmt.Errorf("catalogue: more than %d servers", maxServers))
	}
	offered := map[string]string{}
	namespaces := map[string]bool{}
	for i, s := range c.Servers {
		for _, err := range s.validate() {
			errs = append(errs, fmt.Errorf("catalogue: servers[%d] (%.40q): %w", i, s.Namespace, err))
		}
		if namespaces[s.Namespace] {
			errs = append(errs, fmt.Errorf("catalogue: servers[%d]: the namespace %.40q is there twice", i, s.Namespace))
		}
		namespaces[s.Namespace] = true
		for _, tool := range s.Tools {
			id := toolID(s.Namespace, tool)
			name := OfferedName(id)
			if other, taken := offered[name]; taken && other != id {
				errs = append(errs, fmt.Errorf("catalogue: %q and %q would be offered under one name; rename a namespace", other, id))
			}
			offered[name] = id
		}
	}
	return errors.Join(errs...)
}

func (s Server) validate() []error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !namespacePattern.MatchString(s.Namespace) {
		say("namespace: 1 to 32 characters of [a-z0-9_-], a letter first")
	}
	if s.Transport != TransportStdio {
		say("transport: only %q is implemented", TransportStdio)
	}
	if len(s.Command) == 0 || !filepath.IsAbs(s.Command[0]) {
		say("command: begins with the absolute path of a program")
	}
	if slices.ContainsFunc(s.Command, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		say("command: contains NUL")
	}
	if len(s.Tools) == 0 || len(s.Tools) > maxServerTools {
		say("tools: name 1 to %d", maxServerTools)
	}
	seen := map[string]bool{}
	for _, name := range s.Tools {
		if !toolPattern.MatchString(name) || seen[name] {
			say("tools: %.40q: once, 1 to 128 characters of [A-Za-z0-9._/-]", name)
		}
		seen[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(s.ToolOptions)) {
		if !seen[name] {
			say("tool_options: %.40q is not among the tools", name)
		}
	}
	if !isApproval(s.Approval) || slices.ContainsFunc(slices.Collect(maps.Values(s.ToolOptions)), func(o ToolOptions) bool { return !isApproval(o.Approval) }) {
		say("approval: %q or %q", ApprovalAlways, ApprovalNever)
	}
	if _, err := s.timeout(); err != nil {
		say("timeout: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		if !variablePattern.MatchString(name) || strings.ContainsRune(s.Environment[name], 0) {
			say("environment: %.40q is not a variable that can be set", name)
		}
	}
	if c := s.Credential; c != nil {
		if c.Source != SourceFile {
			say("credential.source: only %q is implemented", SourceFile)
		}
		if !filepath.IsAbs(c.Path) {
			say("credential.path: an absolute path")
		}
		if _, twice := s.Environment[c.Env]; twice || !variablePattern.MatchString(c.Env) {
			say("credential.env: the name of a variable that environment does not set")
		}
	}
	return errs
}

func (s Server) timeout() (time.Duration, error) {
	if s.Timeout == "" {
		return defaultTimeout, nil
	}
	d, err := time.ParseDuration(s.Timeout)
	if err != nil {
		return 0, err
	}
	if d <= 0 || d > maxTimeout {
		return 0, fmt.Errorf("%v is not between 0 and %v", d, maxTimeout)
	}
	return d, nil
}
