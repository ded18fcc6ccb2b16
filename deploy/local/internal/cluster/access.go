package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
	"cofferdam.dev/deploy/local/internal/openfga"
)

const maxConfigBytes = 1 << 20

// Access says who may do what.
type Access struct {
	// OpenFGA is the URL of its server, whose key is that of the data folder.
	OpenFGA string
	// Agents and Catalogue are the files of the services. User may invoke the agents and tools in them, and Operator sees
	// the bindings.
	Agents, Catalogue string
	User, Operator    string
}

// Authorize brings the OpenFGA server to what a says, and gives the lines of the settings that name its store and model.
// It can be repeated.
func Authorize(ctx context.Context, d datadir.Dir, a Access) ([]byte, error) {
	agents, tools, err := names(a.Agents, a.Catalogue)
	if err != nil {
		return nil, err
	}
	key, err := datadir.ReadKey(d.OpenFGAKey(), maxKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("cluster: the key of OpenFGA, which comes with the secrets: %w", err)
	}
	ids, err := openfga.Setup(ctx, openfga.Config{
		URL: a.OpenFGA, Key: string(key), IDs: d.OpenFGAIDs(),
		Grants: openfga.Demo(a.User, issuer.Organization, a.Operator, agents, tools),
	})
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "OPENFGA_STORE_ID=%s\nOPENFGA_MODEL_ID=%s\n", ids.Store, ids.Model), nil
}

// names are the ids of all agents and tools. What else is in the files is checked by the services that read them.
func names(agentFile, catalogueFile string) (agents, tools []string, err error) {
	var a struct {
		Agents []struct {
			ID    string   `json:"agent_id"`
			Tools []string `json:"tools"`
		} `json:"agents"`
	}
	var c struct {
		Servers []struct {
			Namespace string   `json:"namespace"`
			Tools     []string `json:"tools"`
		} `json:"servers"`
	}
	if err := errors.Join(readJSON(agentFile, &a), readJSON(catalogueFile, &c)); err != nil {
		return nil, nil, fmt.Errorf("cluster: %w", err)
	}
	for _, agent := range a.Agents {
		agents = append(agents, agent.ID)
		tools = append(tools, agent.Tools...) // those of the broker itself among them
	}
	for _, s := range c.Servers {
		for _, t := range s.Tools {
			tools = append(tools, s.Namespace+"."+t)
		}
	}
	if len(agents) == 0 {
		return nil, nil, fmt.Errorf("cluster: %s names no agent", agentFile)
	}
	slices.Sort(tools)
	return agents, slices.Compact(tools), nil
}

func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if len(raw) > maxConfigBytes {
		return fmt.Errorf("%s is larger than %d bytes", path, maxConfigBytes)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
