package catalogue

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
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

// How a server is reached.
const (
	// TransportStdio is a server that is a child process.
	TransportStdio = "stdio"
	// TransportHTTP is a server at a URL, over streamable HTTP.
	TransportHTTP = "http"
	// transportBuiltin is no server.
	transportBuiltin = "builtin"
)

// Risk classes of a tool. They stand in the audit record of each call.
const (
	RiskLow    = "low"
	RiskMedium = "medium"
	RiskHigh   = "high"
)

// Config is the operator's catalogue.
//
// New servers belong at its end: where two ids would be offered under one name,
// the one that stands first keeps it.
type Config struct {
	Servers []Server `json:"servers"`
	// Builtin are tools that need no server. There is none by default.
	Builtin *Builtin `json:"builtin,omitempty"`
}

// Server is one MCP server.
type Server struct {
	// Namespace is the first part of the ids of its tools.
	Namespace string `json:"namespace"`
	// Transport is "stdio" or "http".
	Transport string `json:"transport"`
	// Command is, for stdio, the absolute path of the program and its arguments,
	// which any user of the machine can read: no secrets.
	Command []string `json:"command,omitempty"`
	// RunAs is, for stdio, the uid and gid on the host under which the program runs, of
	// no other server and of nobody else. The broker has to be started as root for
	// it. Without it a broker that is root takes one from a range of its own.
	RunAs uint32 `json:"run_as,omitempty"`
	// ReadFolders and WriteFolders are, for stdio, what the program can read and
	// change: absolute paths of files and folders, under which its code counts as
	// well. It sees no others but what is installed for everybody, its own file, and
	// an empty /tmp.
	ReadFolders  []string `json:"read_folders,omitempty"`
	WriteFolders []string `json:"write_folders,omitempty"`
	// Network gives, for stdio, the program the network of the machine. It has none
	// otherwise.
	Network bool `json:"network,omitempty"`
	// URL is, for http, the MCP endpoint.
	URL string `json:"url,omitempty"`
	// Egress says, for http, which addresses may be connected to beside those of
	// the public internet.
	Egress *Egress `json:"egress,omitempty"`
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
	// Risk is "low", "medium" (the default) or "high".
	Risk string `json:"risk,omitempty"`
	// Timeout of a call, such as "30s" (the default), at most 10m.
	Timeout string `json:"timeout,omitempty"`
	// IdleTimeout gives up a call that neither is answered nor tells of progress for
	// so long, such as "10s"; without it a call has its whole timeout. Progress
	// prolongs nothing else.
	IdleTimeout string `json:"idle_timeout,omitempty"`
	// MaxResultBytes bounds the projected result of a call; the default is the
	// most that an event can hold.
	MaxResultBytes int `json:"max_result_bytes,omitempty"`
	// Limits of all calls of the server together.
	Limits *Limits `json:"limits,omitempty"`
	// Credential is what the server needs and the worker never sees.
	Credential *Credential `json:"credential,omitempty"`
	// ListingCredential is, beside a Credential of the source token_exchange, what
	// the tools are listed with, on nobody's behalf; without it they are listed
	// without a credential. It is of another source.
	ListingCredential *Credential `json:"listing_credential,omitempty"`
}

// ToolOptions are what the operator vouches for. What a server says of its own
// tools is no reason to call one again.
type ToolOptions struct {
	// ReadOnly says that the tool is without effects.
	ReadOnly bool `json:"read_only,omitempty"`
	// Idempotent says that a second call with the same arguments has no further
	// effect.
	Idempotent bool `json:"idempotent,omitempty"`
	// Approval, Risk, the timeouts and MaxResultBytes are by default the server's.
	Approval       string `json:"approval,omitempty"`
	Risk           string `json:"risk,omitempty"`
	Timeout        string `json:"timeout,omitempty"`
	IdleTimeout    string `json:"idle_timeout,omitempty"`
	MaxResultBytes int    `json:"max_result_bytes,omitempty"`
}

// Approval policies.
const (
	ApprovalAlways = "always"
	ApprovalNever  = "never"
)

func isApproval(s string) bool { return s == "" || s == ApprovalAlways || s == ApprovalNever }

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
)
