package capability

import (
	"fmt"
	"slices"
	"strings"

	"cofferdam.dev/pkg/identity"
)

// Bounds of a capability.
const (
	// MaxTokenBytes bounds a token, in bytes of its compact form.
	MaxTokenBytes = 8 << 10
	// MaxTools, MaxMemoryScopes and MaxHandles bound the lists of a scope.
	MaxTools        = 256
	MaxMemoryScopes = 3
	MaxHandles      = 64

	maxIssuer  = 512 // bytes
	maxID      = 128 // bytes of jti, run id, handle, alias and kid
	maxBinding = 128 // bytes
)

// Validate says whether a token may carry these claims: every audience has its
// own claims and no others, in their bounds and without repeats. The error is
// for a log; it names a claim and a rule, never a value.
func (c Claims) Validate() error {
	if err := c.validateHolder(); err != nil {
		return err
	}
	switch {
	case c.Issuer == "" || len(c.Issuer) > maxIssuer:
		return invalid("iss", "1 to 512 bytes")
	case !isName(c.ID):
		return invalid("jti", nameRule)
	case !strings.HasPrefix(c.BindingID, "hs_") || len(c.BindingID) > maxBinding || !isName(c.BindingID):
		return invalid("binding_id", "hs_ and at most 125 of [A-Za-z0-9_-]")
	case c.Generation == 0:
		return invalid("lease_generation", "1 or more")
	case c.RunID != "" && !isName(c.RunID):
		return invalid("run_id", nameRule)
	case c.Lifecycle() && c.Audience != HarnessWorker:
		return invalid("run_id", "required for this audience")
	case c.IssuedAt.Unix() <= 0 || c.NotBefore.Unix() <= 0:
		return invalid("iat and nbf", "after 1970")
	case c.Expiry.Unix() <= c.NotBefore.Unix() || c.Expiry.Unix() <= c.IssuedAt.Unix():
		return invalid("exp", "after iat and nbf")
	}
	return c.ValidateScope()
}

// validateHolder is the part of Validate that is about who holds the token. What
// a service may hold is one audience of a run, for a sandbox of its own domain.
func (c Claims) validateHolder() error {
	if !c.Narrowed() {
		if _, ok := identity.InstanceUID(c.Subject); !ok {
			return invalid("sub", "the SPIFFE ID of a sandbox")
		}
		return nil
	}
	_, sandbox := identity.InstanceUID(c.Actor)
	switch {
	case !sandbox || !c.Actor.MemberOf(c.Subject.TrustDomain()):
		return invalid("act", "the SPIFFE ID of a sandbox of the same trust domain")
	case !identity.IsService(c.Subject):
		return invalid("sub", "the SPIFFE ID of a service where there is an act")
	case c.Audience != FileBroker:
		return invalid("act", "only for file-broker")
	}
	return nil
}

// ValidateScope is the part of Validate that is about what the audience may be
// told: Tools, MemoryScopes, Handles and ModelAlias. The error names a field of
// the scope and its rule, never a value, and may be shown to the one who asked.
func (c Claims) ValidateScope() error {
	a := c.Audience
	switch {
	case !a.Known():
		return invalid("audience", "one of the six audiences")
	case a != ToolBroker && len(c.Tools) > 0:
		return invalid("tools", "only for tool-broker")
	case slices.ContainsFunc(c.ApproveTools, func(t string) bool { return !slices.Contains(c.Tools, t) }):
		return invalid("approve_tools", "only what stands in tools")
	case a != Memory && len(c.MemoryScopes) > 0:
		return invalid("memory_scopes", "only for memory")
	case a != FileBroker && len(c.Handles) > 0:
		return invalid("handles", "only for file-broker")
	case a != ModelProxy && c.ModelAlias != "":
		return invalid("model_alias", "only for model-proxy")
	case a == Memory && len(c.MemoryScopes) == 0:
		return invalid("memory_scopes", "at least one")
	case a == FileBroker && c.Narrowed() == (len(c.Handles) > 0):
		return invalid("handles", "at least one, and none for who acts for a sandbox")
	case a == ModelProxy && !isName(c.ModelAlias):
		return invalid("model_alias", nameRule)
	}
	for _, l := range []struct {
		name  string
		items []string
		most  int
		ok    func(string) bool
		rule  string
	}{
		{"tools", c.Tools, MaxTools, isTool, "namespace.name, exactly"},
		{"approve_tools", c.ApproveTools, MaxTools, isTool, "namespace.name, exactly"},
		{"memory_scopes", c.MemoryScopes, MaxMemoryScopes, isMemoryScope, "user, agent or organization"},
		{"handles", c.Handles, MaxHandles, isName, nameRule},
	} {
		if len(l.items) > l.most {
			return invalid(l.name, fmt.Sprintf("at most %d", l.most))
		}
		seen := make(map[string]struct{}, len(l.items))
		for _, s := range l.items {
			if !l.ok(s) {
				return invalid(l.name, l.rule)
			}
			if _, twice := seen[s]; twice {
				return invalid(l.name, "no repeats")
			}
			seen[s] = struct{}{}
		}
	}
	return nil
}

const nameRule = "1 to 128 of [A-Za-z0-9._:-]"

func invalid(field, rule string) error { return fmt.Errorf("%s: %s", field, rule) }

// isName is ^[A-Za-z0-9._:-]{1,128}$, which the wire uses for opaque ids.
func isName(s string) bool { return len(s) <= maxID && madeOf(s, "._:-") }

// isTool is ^[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9._/-]{1,128}$.
func isTool(s string) bool {
	namespace, name, ok := strings.Cut(s, ".")
	return ok && len(namespace) <= 64 && len(name) <= 128 && madeOf(namespace, "_-") && madeOf(name, "._/-")
}

func isMemoryScope(s string) bool {
	return slices.Contains([]string{"user", "agent", "organization"}, s)
}

// madeOf reports whether s is at least one ASCII letter, digit or byte of extra.
func madeOf(s, extra string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(extra, c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
