// Package harnesses is the catalogue of what sandboxes can host: for each profile
// of the operator the harness that runs in it, with the schema of its options and
// the levels of its capabilities. An agent is checked by it before it is kept.
package harnesses

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/pkg/toolschema"
)

// MaxBytes of one descriptor.
const MaxBytes = 1 << 20

// Level says how far a harness has a capability.
type Level string

// The levels of the Harness Adapter contract. Native and emulated are what an agent
// can use; unsupported was not seen, and unavailable was switched off.
const (
	Native      Level = "native"
	Emulated    Level = "emulated"
	Unsupported Level = "unsupported"
	Unavailable Level = "unavailable"
)

// Capability is the level of one key of the contract.
type Capability struct {
	Level       Level  `json:"level"`
	Constraints string `json:"constraints,omitempty"`
	Reason      string `json:"reason,omitempty"`
	EvidenceID  string `json:"evidence_id,omitempty"`
}

// Descriptor is what an adapter says of itself.
type Descriptor struct {
	HarnessID        string                `json:"harness_id"`
	AdapterVersion   string                `json:"adapter_version"`
	ContractVersions []uint32              `json:"contract_versions"`
	ExecutionMode    string                `json:"execution_mode"`
	OptionsSchema    json.RawMessage       `json:"options_schema"`
	Capabilities     map[string]Capability `json:"capabilities"`
}

// Entry is a harness as a profile runs it.
type Entry struct {
	// Profile is the operator's name of the kind of sandbox.
	Profile string `json:"profile"`
	// Enabled is false where the operator has switched the profile off.
	Enabled bool `json:"enabled"`
	Descriptor

	schema *toolschema.Schema
}

var (
	idPattern   = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)
	textPattern = regexp.MustCompile(`^[A-Za-z0-9._+:-]{1,64}$`)
)

// Parse reads the descriptor that a worker gave of the harness of a profile.
func Parse(profile string, enabled bool, harness string, raw []byte) (Entry, error) {
	e := Entry{Profile: profile, Enabled: enabled}
	// Keys of a schema are names of options, and may differ in case only.
	o := strictjson.Options{MaxBytes: MaxBytes, AllowCaseVariants: true}
	if err := strictjson.Unmarshal(raw, &e.Descriptor, o); err != nil {
		return e, fmt.Errorf("descriptor: %w", err)
	}
	switch {
	case e.HarnessID != harness || !idPattern.MatchString(harness):
		return e, fmt.Errorf("descriptor: it is of the harness %.64q, and the profile runs %q", e.HarnessID, harness)
	case !textPattern.MatchString(e.AdapterVersion), !textPattern.MatchString(e.ExecutionMode), !slices.Contains(e.ContractVersions, 1):
		return e, fmt.Errorf("descriptor of %s: no adapter version, execution mode, or version 1 of the contract", harness)
	}
	for key, c := range e.Capabilities {
		switch c.Level {
		case Native, Emulated, Unsupported, Unavailable:
		default:
			return e, fmt.Errorf("descriptor of %s: %.64q has the level %.64q", harness, key, c.Level)
		}
	}
	var err error
	if e.schema, err = toolschema.Compile(e.OptionsSchema); err != nil {
		return e, fmt.Errorf("descriptor of %s: options_schema: %w", harness, err)
	}
	return e, nil
}

// Offers reports whether an agent can use a capability, and if not, why.
func (e Entry) Offers(key string) (ok bool, reason string) {
	c, known := e.Capabilities[key]
	switch {
	case c.Level == Native, c.Level == Emulated:
		return true, ""
	case !known:
		return false, "not described"
	default:
		return false, string(c.Level)
	}
}

// CheckOptions says where options do not fit the harness's schema: a JSON pointer
// below the options and the rule that is broken, never a value.
func (e Entry) CheckOptions(options map[string]any) []*toolschema.ArgumentError {
	if options == nil {
		options = map[string]any{}
	}
	return e.schema.Violations(options)
}

// Catalogue holds the entries of an installation. It does not change.
type Catalogue struct{ entries []Entry }

// New makes a Catalogue, in the order of the profiles.
func New(entries ...Entry) *Catalogue { return &Catalogue{slices.Clone(entries)} }

// All lists every entry.
func (c *Catalogue) All() []Entry { return slices.Clone(c.entries) }

// For gives the entry of the profile that a claim would get: the one of that name
// which runs the harness, or without a name the first that runs it and is enabled.
func (c *Catalogue) For(harness, profile string) (Entry, bool) {
	for _, e := range c.entries {
		if e.HarnessID == harness && (profile == e.Profile || profile == "" && e.Enabled) {
			return e, true
		}
	}
	return Entry{}, false
}
