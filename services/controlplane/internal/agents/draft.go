package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/controlplane/internal/agentfiles"
)

// Draft is what is to become a version of an agent.
type Draft struct {
	agent Agent
	// digest is that of what was given, before defaults, which may change with the
	// program.
	digest string
	// given is what the document itself said of id and version.
	given Given
	// found are the contents that the agent names, where they were read from folder.
	found  map[blob.Content]agentfiles.Found
	folder agentfiles.Folder
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
//
// Its skills and files name contents, as an Agent does.
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

// draftOfFile is a draft whose skills and files are paths below a folder. They are read,
// and the draft is that of the document which names what was found: other bytes are
// another content of the agent.
func draftOfFile(raw []byte, folder agentfiles.Folder) (Draft, error) {
	var members map[string]json.RawMessage
	if err := strictjson.Unmarshal(raw, &members, strictjson.Options{MaxBytes: MaxBytes}); err != nil {
		return Draft{}, err
	}
	var all []agentfiles.Found
	var errs []error
	for _, part := range []struct {
		field string
		read  func(entries []string) ([]agentfiles.Found, error)
	}{{"skills", folder.Skills}, {"files", folder.Files}} {
		value, there := members[part.field]
		if !there {
			continue
		}
		var entries []string
		if err := json.Unmarshal(value, &entries); err != nil {
			errs = append(errs, fmt.Errorf("%s: paths, relative to the folder of this file: %w", part.field, err))
			continue
		}
		found, err := part.read(entries)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		named := make([]agentfiles.File, len(found))
		for i, f := range found {
			named[i] = f.File
		}
		if members[part.field], err = json.Marshal(named); err != nil {
			return Draft{}, err
		}
		all = append(all, found...)
	}
	if err := errors.Join(errs...); err != nil {
		return Draft{}, err
	}
	if len(all) > 0 {
		var err error
		if raw, err = json.Marshal(members); err != nil {
			return Draft{}, err
		}
	}
	d, err := draft(raw)
	d.found, d.folder = agentfiles.Contents(all), folder
	return d, err
}

// Load reads the operator's agents from a JSON file: {"agents": […]}, at most 4 MiB.
// Their skills and files are paths below folder.
func Load(path, folder string) ([]Draft, error) {
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
	drafts, err := Parse(raw, agentfiles.In(folder))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return drafts, nil
}

// Parse reads agents from JSON and fills in defaults; a version that is left out is
// 0. Skills and files are read from the folder. The error names every agent that is
// wrong; then there are none.
func Parse(raw []byte, folder agentfiles.Folder) ([]Draft, error) {
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
		d, err := draftOfFile(raw, folder)
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
