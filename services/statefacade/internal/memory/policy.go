package memory

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/strictjson"
)

const (
	maxPolicyBytes = 1 << 20
	maxRetention   = 100 * 365
	// KeepProfile is the retention profile of what is kept until it is deleted.
	KeepProfile = "keep"
)

var profileName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// Policy is what an operator says about memory. The zero Policy is the contract's
// default: runs write to the user scope, and agent and organization are
// read-only.
type Policy struct {
	// SharedLearning has the ids of the agents whose runs may write to their agent's
	// scope.
	SharedLearning []string `json:"shared_learning"`
	// AgentSets share the organization scope among their agents. An agent that is in
	// none is alone with it.
	AgentSets []AgentSet `json:"agent_sets"`
	// Administrators of an organization: its scope is written by their runs only.
	Administrators []Administrators `json:"administrators"`
	// Approval has the kinds of records, by scope, whose changes a person has to
	// approve, one by one. A scope that is left out has its default: none for user,
	// and all kinds for agent and organization.
	Approval map[Scope][]Kind `json:"approval"`
	// Retention says how long records are kept.
	Retention Retention `json:"retention"`
}

// AgentSet is a named set of agents. An agent is in one at most.
type AgentSet struct {
	Name   string   `json:"name"`
	Agents []string `json:"agents"`
}

// Administrators are subjects of one organization.
type Administrators struct {
	Organization string   `json:"organization"`
	Subjects     []string `json:"subjects"`
}

// Retention has the profiles that a write may name.
type Retention struct {
	// Days by profile: how long a record is kept after it was last written, 1 to
	// 36500. "keep" is always there, and keeps what is not deleted.
	Days map[string]int `json:"days"`
	// Default is the profile, by scope, of a write that names none; "keep" where a
	// scope is left out.
	Default map[Scope]string `json:"default"`
}

// LoadPolicy reads a policy from a JSON file of at most 1 MiB. No path is the
// zero Policy.
func LoadPolicy(path string) (Policy, error) {
	if path == "" {
		return Policy{}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return Policy{}, fmt.Errorf("memory policy: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(f, maxPolicyBytes+1))
	if err != nil {
		return Policy{}, fmt.Errorf("memory policy: %w", err)
	}
	p, err := ParsePolicy(raw)
	if err != nil {
		return Policy{}, fmt.Errorf("memory policy: %s: %w", path, err)
	}
	return p, nil
}

// ParsePolicy reads a policy from JSON. The error names everything that is wrong.
func ParsePolicy(raw []byte) (Policy, error) {
	var p Policy
	if err := strictjson.Unmarshal(raw, &p, strictjson.Options{MaxBytes: maxPolicyBytes}); err != nil {
		return Policy{}, err
	}
	return p, p.validate()
}

func (p Policy) validate() error {
	var errs []error
	sets := make(map[string]bool)
	members := make(map[string]bool)
	for i, s := range p.AgentSets {
		if s.Name == "" || sets[s.Name] {
			errs = append(errs, fmt.Errorf("agent_sets[%d].name: required, each once", i))
		}
		sets[s.Name] = true
		for _, a := range s.Agents {
			if members[a] {
				errs = append(errs, fmt.Errorf("agent_sets[%d].agents: %q is in two sets", i, a))
			}
			members[a] = true
		}
	}
	for i, a := range p.Administrators {
		if a.Organization == "" || slices.Contains(a.Subjects, "") {
			errs = append(errs, fmt.Errorf("administrators[%d]: an organization and the subjects of people", i))
		}
	}
	for scope, kinds := range p.Approval {
		if !scope.valid() {
			errs = append(errs, fmt.Errorf("approval: %q is no scope: user, agent or organization", scope))
		}
		for _, k := range kinds {
			if !k.valid() {
				errs = append(errs, fmt.Errorf("approval.%s: %q is no kind: semantic, episodic_reference or procedural", scope, k))
			}
		}
	}
	return errors.Join(append(errs, p.Retention.validate())...)
}

func (r Retention) validate() error {
	var errs []error
	for name, days := range r.Days {
		if !profileName.MatchString(name) || name == KeepProfile || days < 1 || days > maxRetention {
			errs = append(errs, fmt.Errorf("retention.days.%s: 1 to %d days, under a name of [a-z0-9_-] other than %q", name, maxRetention, KeepProfile))
		}
	}
	for scope, name := range r.Default {
		if _, ok := r.lifetime(name); !scope.valid() || !ok {
			errs = append(errs, fmt.Errorf("retention.default.%s: a scope, and %q or a name of retention.days", scope, KeepProfile))
		}
	}
	return errors.Join(errs...)
}

// lifetime of a profile; 0 is for ever.
func (r Retention) lifetime(profile string) (time.Duration, bool) {
	days, ok := r.Days[profile]
	return time.Duration(days) * 24 * time.Hour, ok || profile == KeepProfile
}

// profile is the one that a write names, or its scope's default.
func (r Retention) profile(scope Scope, named string) string {
	switch {
	case named != "":
		return named
	case r.Default[scope] != "":
		return r.Default[scope]
	default:
		return KeepProfile
	}
}

// mayWrite says whether runs of this identity may change records of a scope.
func (p Policy) mayWrite(scope Scope, id binding.Identity) bool {
	switch scope {
	case ScopeUser:
		return true
	case ScopeAgent:
		return slices.Contains(p.SharedLearning, id.AgentID)
	case ScopeOrganization:
		return slices.ContainsFunc(p.Administrators, func(a Administrators) bool {
			return a.Organization == id.Organization && slices.Contains(a.Subjects, id.Subject)
		})
	}
	return false
}

// needsApproval says whether a person has to approve a change of a record of this
// kind.
func (p Policy) needsApproval(scope Scope, kind Kind) bool {
	kinds, said := p.Approval[scope]
	if !said {
		return scope != ScopeUser
	}
	return slices.Contains(kinds, kind)
}

// agentSet names the set that an agent shares its organization's scope with. No
// name of a set is that of a lone agent.
func (p Policy) agentSet(agentID string) (kind, name string) {
	for _, s := range p.AgentSets {
		if slices.Contains(s.Agents, agentID) {
			return "set", s.Name
		}
	}
	return "agent", agentID
}

func (s Scope) valid() bool {
	return slices.Contains([]Scope{ScopeUser, ScopeAgent, ScopeOrganization}, s)
}

func (k Kind) valid() bool {
	return slices.Contains([]Kind{KindSemantic, KindEpisodicReference, KindProcedural}, k)
}
