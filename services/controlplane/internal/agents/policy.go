package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

const (
	maxContextTokens   = 100_000_000
	maxMiddleware      = 16
	maxMiddlewareBytes = 16 << 10
	defaultExpiry      = 7 * 24 * time.Hour
	maxExpiry          = 90 * 24 * time.Hour
)

var middlewarePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)

// Model is what is known of the model behind the alias.
type Model struct {
	// Wire that it speaks: "openai_chat" by default, "openai_responses",
	// "anthropic_messages" or "gemini".
	Wire string `json:"wire"`
	// ContextTokens that it takes; 0 is unknown, and then nothing is compacted.
	ContextTokens uint32 `json:"context_tokens"`
	// Images and Documents tell what it takes besides text.
	Images    bool `json:"images"`
	Documents bool `json:"documents"`
}

func (m Model) validate() error {
	var errs []error
	if !slices.Contains([]string{"", "openai_chat", "openai_responses", "anthropic_messages", "gemini"}, m.Wire) {
		errs = append(errs, errors.New("model.wire: openai_chat, openai_responses, anthropic_messages or gemini"))
	}
	if m.ContextTokens > maxContextTokens {
		errs = append(errs, fmt.Errorf("model.context_tokens: at most %d", maxContextTokens))
	}
	return errors.Join(errs...)
}

// Interrupts say what the harness may not ask a person for, and how long a
// question waits for its answer.
type Interrupts struct {
	NoFormInput    bool `json:"no_form_input"`
	NoToolApproval bool `json:"no_tool_approval"`
	// ExpireAfterSeconds is how long a question can be answered: 7 days by default,
	// at most 90.
	ExpireAfterSeconds uint32 `json:"expire_after_seconds"`
}

// Unattended is the agent where nobody can be asked: a tool that wants an approval
// is refused.
func (a Agent) Unattended() Agent {
	a.Interrupts.NoFormInput, a.Interrupts.NoToolApproval = true, true
	return a
}

// ExpireAfter is how long a question can be answered.
func (i Interrupts) ExpireAfter() time.Duration {
	return time.Duration(i.ExpireAfterSeconds) * time.Second
}

// Middleware is one portable step around the calls of a harness, by name.
type Middleware struct {
	Name    string         `json:"name"`
	Options map[string]any `json:"options,omitzero"`
}

func validateMiddleware(steps []Middleware) error {
	if len(steps) > maxMiddleware {
		return fmt.Errorf("middleware: at most %d", maxMiddleware)
	}
	var errs []error
	for i, m := range steps {
		if !middlewarePattern.MatchString(m.Name) {
			errs = append(errs, fmt.Errorf("middleware[%d].name: 2 to 64 characters of [a-z0-9_], a letter first", i))
		}
		if raw, err := json.Marshal(m.Options); err != nil || len(raw) > maxMiddlewareBytes {
			errs = append(errs, fmt.Errorf("middleware[%d].options: at most %d bytes", i, maxMiddlewareBytes))
		}
	}
	return errors.Join(errs...)
}

func validateScopes(scopes []string) error {
	var errs []error
	for i, s := range scopes {
		if !slices.Contains([]string{"user", "agent", "organization"}, s) || slices.Contains(scopes[:i], s) {
			errs = append(errs, errors.New("memory_scopes: user, agent and organization, each once"))
		}
	}
	return errors.Join(errs...)
}

// middlewareDeny is the step that keeps tools from being called at all.
const middlewareDeny = "tool_deny"

// DeniedTools are the exact ids that the agent's middleware denies.
func (a Agent) DeniedTools() []string {
	var denied []string
	for _, m := range a.Middleware {
		ids, ok := m.Options["tool_ids"].([]any)
		if m.Name != middlewareDeny || !ok {
			continue
		}
		for _, id := range ids {
			if s, ok := id.(string); ok {
				denied = append(denied, s)
			}
		}
	}
	return denied
}
