package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"cofferdam.dev/pkg/strictjson"
)

// Draft is what is to become a version of an agent.
type Draft struct {
	agent Agent
	// digest is that of what was given, before defaults, which may change with the
	// program.
	digest string
	// given is what the document itself said of id and version.
	given Given
}

// Given is how a document calls the agent that it is of; both may be left out where
// that is said elsewhere.
type Given struct {
	ID      string
	Version uint32
}

// Given by the document of a draft.
func (d Draft) Given() Given { return d.given }

// NewDraft makes a draft of one JSON object with the fields of an Agent; its id is
// the given one, and its version the next. It is not validated: Put does that. Errors
// are of package strictjson.
func NewDraft(id string, raw []byte) (Draft, error) {
	d, err := draft(raw)
	if err != nil {
		return Draft{}, err
	}
	d.given = Given{d.agent.ID, d.agent.Version}
	d.agent.ID, d.agent.Version = id, 0
	return d, nil
}

// draft fills in defaults. The digest is of the document without id and version.
func draft(raw []byte) (Draft, error) {
	var d Draft
	if err := strictjson.Unmarshal(raw, &d.agent, strictjson.Options{MaxBytes: MaxBytes}); err != nil {
		return d, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return d, err
	}
	delete(members, "agent_id")
	delete(members, "version")
	rest, err := json.Marshal(members)
	if err != nil {
		return d, err
	}
	canonical, err := strictjson.Canonical(rest, strictjson.Options{MaxBytes: 2 * MaxBytes})
	if err != nil {
		return d, err
	}
	d.agent, d.digest = withDefaults(d.agent), digestOf(canonical)
	return d, nil
}

// Load reads the operator's agents from a JSON file: {"agents": […]}, at most 4 MiB.
func Load(path string) ([]Draft, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("agents: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("agents: %s is not a regular file", path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1)) // one more than Parse takes
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	drafts, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return drafts, nil
}

// Parse reads agents from JSON and fills in defaults; a version that is left out is
// 0. The error names every agent that is wrong; then there are none.
func Parse(raw []byte) ([]Draft, error) {
	var doc struct {
		Agents []json.RawMessage `json:"agents"`
	}
	if err := strictjson.Unmarshal(raw, &doc, strictjson.Options{MaxBytes: maxFileBytes}); err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	out := make([]Draft, 0, len(doc.Agents))
	seen := map[string]bool{}
	var errs []error
	for i, raw := range doc.Agents {
		d, err := draft(raw)
		if err == nil {
			err = d.agent.validate()
		}
		if err == nil && seen[d.agent.ID] {
			err = fmt.Errorf("agent_id %q stands twice", d.agent.ID)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("agents[%d]: %w", i, err))
			continue
		}
		seen[d.agent.ID] = true
		out = append(out, d)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}
