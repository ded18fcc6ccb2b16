package mint

import (
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
)

// Request asks for capabilities for one sandbox, for the run or the lease that
// was admitted.
type Request struct {
	// Subject is the sandbox that will hold them; it must be the instance of the
	// committed lease.
	Subject spiffeid.ID
	// Owner is the replica, and its incarnation, that drives the run; empty
	// without a run.
	Owner string
	// Scopes are 1 to 6, at most one for each audience.
	Scopes []Scope
}

// Scope is what one capability allows. Each audience takes only its own fields.
type Scope struct {
	Audience     capability.Audience
	Tools        []string
	ApproveTools []string
	MemoryScopes []string
	Handles      []string
	ModelAlias   string
}

func (s Scope) claims() capability.Claims {
	return capability.Claims{Audience: s.Audience, Tools: s.Tools, ApproveTools: s.ApproveTools, MemoryScopes: s.MemoryScopes, Handles: s.Handles, ModelAlias: s.ModelAlias}
}

// validate checks what can be checked without the record: the narrowing rules.
// Every error is invalid_request and says which field and which rule.
func (r Request) validate(td spiffeid.TrustDomain, run bool) error {
	if _, ok := identity.InstanceUID(r.Subject); !ok || !r.Subject.MemberOf(td) {
		return refuse("subject: the SPIFFE ID of a sandbox in this trust domain")
	}
	switch {
	case run && r.Owner == "":
		return refuse("owner: required with a run")
	case !run && r.Owner != "":
		return refuse("owner: only with a run")
	case len(r.Scopes) == 0 || len(r.Scopes) > len(capability.Audiences()):
		return refuse("scopes: 1 to 6")
	}
	seen := make(map[capability.Audience]bool, len(r.Scopes))
	for i, s := range r.Scopes {
		if err := s.claims().ValidateScope(); err != nil {
			return refuse(fmt.Sprintf("scopes[%d].%v", i, err))
		}
		if seen[s.Audience] {
			return refuse(fmt.Sprintf("scopes[%d].audience: one scope for each audience", i))
		}
		seen[s.Audience] = true
		if !run && s.Audience != capability.HarnessWorker {
			return refuse(fmt.Sprintf("scopes[%d].audience: only harness-worker without a run", i))
		}
	}
	return nil
}

func refuse(detail string) error {
	return fault.New(fault.InvalidRequest, op, fault.Detail(detail))
}
