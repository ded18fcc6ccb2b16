// Package agents has the agents of an installation: what a conversation runs with.
//
// An agent is a sequence of versions that never change. The operator's file seeds
// them and PUT adds to them; a conversation stays on the version that it began with,
// which its committed record names.
package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"cofferdam.dev/services/controlplane/internal/agentfiles"
)

// MaxBytes of one agent as JSON.
const MaxBytes = 1 << 20

// Bounds and defaults of an agent. What a worker is given with bind has the
// bounds of the wire: what does not fit is found when the catalogue is read, and
// not by the first run.
const (
	maxFileBytes        = 4 << 20
	maxName             = 128 // characters
	maxOrganization     = 256 // bytes
	maxAdapterVersion   = 64
	maxOptionsBytes     = 64 << 10
	maxPromptBytes      = 256 << 10
	maxTools            = 256
	maxCalls            = 1000
	defaultRunTimeout   = 10 * time.Minute
	maxRunTimeout       = 24 * time.Hour
	defaultModelCalls   = 16
	defaultToolCalls    = 32
	defaultOutputTokens = 4096
	maxUploads          = 16
	maxDelegates        = 32
)

var (
	idPattern      = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	harnessPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)
	aliasPattern   = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)
	toolPattern    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}\.([A-Za-z0-9._/-]{1,128}|\*)$`)
)

// Agent is one immutable version of an agent.
type Agent struct {
	ID      string `json:"agent_id"`
	Version uint32 `json:"version"`
	Name    string `json:"name"`
	// Organization that the agent belongs to, for people: whose caller may use the
	// agent is what OpenFGA says.
	Organization string `json:"organization"`
	// Harness is the id of the adapter, such as "native".
	Harness        string `json:"harness"`
	AdapterVersion string `json:"adapter_version"`
	// HarnessOptions are checked by the adapter's schema at bind.
	HarnessOptions map[string]any `json:"harness_options,omitzero"`
	ModelAlias     string         `json:"model_alias"`
	Model          Model          `json:"model"`
	Prompt         string         `json:"prompt"`
	// Tools are exact tool ids, or "namespace.*".
	Tools []string `json:"tools,omitzero"`
	// ApproveTools are those of the tools that a person is asked about before each
	// call: exact tool ids, or "namespace.*".
	ApproveTools []string `json:"approve_tools,omitzero"`
	// Skills and Files stand in the workspace of every worker that is bound for the
	// agent, read-only. What stands here names contents and does not have them.
	Skills []agentfiles.File `json:"skills,omitzero"`
	Files  []agentfiles.File `json:"files,omitzero"`
	// Delegates are the ids of the agents that the agent may let work for it, by the
	// tool that delegates.
	Delegates  []string   `json:"delegates,omitzero"`
	Interrupts Interrupts `json:"interrupts"`
	// Middleware is applied to the calls of the harness, the first one outermost.
	Middleware []Middleware `json:"middleware,omitzero"`
	// MemoryScopes that the harness may offer; "user" by default.
	MemoryScopes []string `json:"memory_scopes,omitzero"`
	// Profile is the operator's name for the sandbox that is claimed; may be empty.
	Profile string `json:"profile"`
	Limits  Limits `json:"limits"`
}

// RequiresApproval reports whether a person is asked before a tool is called.
func (a Agent) RequiresApproval(toolID string) bool {
	namespace, _, _ := strings.Cut(toolID, ".")
	return slices.Contains(a.ApproveTools, toolID) || slices.Contains(a.ApproveTools, namespace+".*")
}

// Limits bound the runs of an agent. A zero is the default.
type Limits struct {
	RunTimeoutSeconds uint32 `json:"run_timeout_seconds"`
	MaxModelCalls     uint32 `json:"max_model_calls"`
	MaxToolCalls      uint32 `json:"max_tool_calls"`
	MaxOutputTokens   uint32 `json:"max_output_tokens"`
	// MaxUploads is how many files a run may write; none by default.
	MaxUploads uint32 `json:"max_uploads"`
}

// RunTimeout is how long a run may take.
func (l Limits) RunTimeout() time.Duration { return time.Duration(l.RunTimeoutSeconds) * time.Second }

func withDefaults(a Agent) Agent {
	l := &a.Limits
	if l.RunTimeoutSeconds == 0 {
		l.RunTimeoutSeconds = uint32(defaultRunTimeout / time.Second)
	}
	if l.MaxModelCalls == 0 {
		l.MaxModelCalls = defaultModelCalls
	}
	if l.MaxToolCalls == 0 {
		l.MaxToolCalls = defaultToolCalls
	}
	if l.MaxOutputTokens == 0 {
		l.MaxOutputTokens = defaultOutputTokens
	}
	if a.Interrupts.ExpireAfterSeconds == 0 {
		a.Interrupts.ExpireAfterSeconds = uint32(defaultExpiry / time.Second)
	}
	if a.MemoryScopes == nil {
		a.MemoryScopes = []string{"user"}
	}
	return a
}

func (a Agent) validate() error {
	var errs []error
	for _, rule := range []struct {
		ok   bool
		text string
	}{
		{idPattern.MatchString(a.ID), "agent_id: 1 to 64 characters of [A-Za-z0-9._-]"},
		{utf8.RuneCountInString(a.Name) <= maxName, "name: at most 128 characters"},
		{len(a.Organization) <= maxOrganization, "organization: at most 256 bytes"},
		{harnessPattern.MatchString(a.Harness), "harness: required, 2 to 64 characters of [a-z0-9_], a letter first"},
		{a.AdapterVersion != "" && len(a.AdapterVersion) <= maxAdapterVersion, "adapter_version: required, at most 64 bytes"},
		{a.optionsBytes() <= maxOptionsBytes, "harness_options: at most 64 KiB"},
		{aliasPattern.MatchString(a.ModelAlias), "model_alias: required, an alias of the model proxy, 1 to 128 characters of [A-Za-z0-9._:-]"},
		{len(a.Prompt) <= maxPromptBytes, "prompt: at most 256 KiB"},
		{len(a.Tools) <= maxTools, "tools: at most 256"},
		{a.Profile == "" || idPattern.MatchString(a.Profile), "profile: empty, or 1 to 64 characters of [A-Za-z0-9._-]"},
		{a.Limits.RunTimeout() <= maxRunTimeout, "limits.run_timeout_seconds: at most 86400"},
		{a.Limits.MaxModelCalls <= maxCalls, "limits.max_model_calls: at most 1000"},
		{a.Limits.MaxToolCalls <= maxCalls, "limits.max_tool_calls: at most 1000"},
		{a.Limits.MaxUploads <= maxUploads, "limits.max_uploads: at most 16"},
		{a.Interrupts.ExpireAfter() <= maxExpiry, "interrupts.expire_after_seconds: at most 7776000"},
		{len(a.ApproveTools) <= maxTools, "approve_tools: at most 256"},
		{len(a.Delegates) <= maxDelegates, "delegates: at most 32"},
	} {
		if !rule.ok {
			errs = append(errs, errors.New(rule.text))
		}
	}
	for field, patterns := range map[string][]string{"tools": a.Tools, "approve_tools": a.ApproveTools} {
		for _, t := range patterns {
			if !toolPattern.MatchString(t) {
				errs = append(errs, fmt.Errorf("%s: %.200q is not namespace.name or namespace.*", field, t))
			}
		}
	}
	for _, id := range a.Delegates {
		if !idPattern.MatchString(id) || id == a.ID {
			errs = append(errs, fmt.Errorf("delegates: %.100q is not the id of another agent", id))
		}
	}
	errs = append(errs, a.Model.validate(), validateMiddleware(a.Middleware), validateScopes(a.MemoryScopes), agentfiles.Check(a.Skills, a.Files))
	return errors.Join(errs...)
}

// optionsBytes is the size of the options as they are sent.
func (a Agent) optionsBytes() int {
	raw, err := json.Marshal(a.HarnessOptions)
	if err != nil { // it came from JSON, so it goes back to it
		return maxOptionsBytes + 1
	}
	return len(raw)
}
