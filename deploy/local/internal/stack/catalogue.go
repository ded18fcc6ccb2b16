package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
	"cofferdam.dev/deploy/local/internal/mcpfiles"
)

const (
	maxConfigBytes  = 1 << 20
	sampleNamespace = "fs"
	// builtinNamespace is that of the ToolBroker's own tools, and delegateTool the one
	// that costs nothing: an agent has to name those to which it delegates.
	builtinNamespace = "builtin"
	delegateTool     = "delegate"
	// modelAlias is what the demo agent calls its model, whichever that is.
	modelAlias = "demo"
)

// catalogue is what the services are configured with: agents, tools and models.
type catalogue struct {
	// agents and tools are the ids of all of them.
	agents, tools []string
	// tokenEndpoints are those for which subjects have to be asserted.
	tokenEndpoints []string
}

// writeCatalogue writes the configuration files of the services. What is in the
// files of the operator is checked by the service that reads it; here only names
// are read, to grant them.
func writeCatalogue(d datadir.Dir, cfg Config) (catalogue, error) {
	var c catalogue
	servers, builtin, err := c.servers(d, cfg)
	if err != nil {
		return c, err
	}
	agents, err := c.agentFile(cfg)
	if err != nil {
		return c, err
	}
	for name, doc := range map[string]any{
		"catalogue": map[string]any{"servers": servers, "builtin": builtin},
		"aliases":   map[string]any{"aliases": map[string]any{modelAlias: cfg.Model.alias()}},
		"agents":    agents,
	} {
		raw, err := json.MarshalIndent(doc, "", "  ")
		if err != nil {
			return c, err
		}
		if err := datadir.Write(d.Config(name), append(raw, '\n')); err != nil {
			return c, err
		}
	}
	return c, nil
}

// servers are the sample server and those of the operator, and builtin is what the
// operator wants of the tools that need no server, besides the one that delegates.
func (c *catalogue) servers(d datadir.Dir, cfg Config) (servers []json.RawMessage, builtin map[string]json.RawMessage, err error) {
	sample, err := json.Marshal(map[string]any{
		"namespace": sampleNamespace, "transport": "stdio", "read_only": true,
		"command": []string{cfg.program(filesProgram), "--root", d.Sample()},
		"tools":   []string{mcpfiles.ToolList, mcpfiles.ToolRead}, "read_folders": []string{d.Sample()},
	})
	if err != nil {
		return nil, nil, err
	}
	var doc struct {
		Servers []json.RawMessage          `json:"servers"`
		Builtin map[string]json.RawMessage `json:"builtin"`
	}
	if cfg.MCPConfig != "" {
		if err := readJSON("--mcp-config", cfg.MCPConfig, &doc); err != nil {
			return nil, nil, err
		}
	}
	servers = append([]json.RawMessage{sample}, doc.Servers...)
	for i, raw := range servers {
		var s struct {
			Namespace  string   `json:"namespace"`
			Tools      []string `json:"tools"`
			Credential struct {
				Source   string `json:"source"`
				TokenURL string `json:"token_url"`
			} `json:"credential"`
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, nil, fmt.Errorf("--mcp-config: servers[%d]: %w", i-1, err)
		}
		for _, t := range s.Tools {
			c.tools = append(c.tools, s.Namespace+"."+t)
		}
		if s.Credential.Source == "token_exchange" && !slices.Contains(c.tokenEndpoints, s.Credential.TokenURL) {
			c.tokenEndpoints = append(c.tokenEndpoints, s.Credential.TokenURL)
		}
	}
	builtin = doc.Builtin
	if builtin == nil {
		builtin = map[string]json.RawMessage{}
	}
	if builtin[delegateTool] == nil {
		builtin[delegateTool] = json.RawMessage("{}")
	}
	for _, name := range slices.Sorted(maps.Keys(builtin)) {
		c.tools = append(c.tools, builtinNamespace+"."+name)
	}
	return servers, builtin, nil
}

// agentFile is the demo agent, or what the operator brings instead.
func (c *catalogue) agentFile(cfg Config) (any, error) {
	if cfg.Agents == "" {
		c.agents = []string{DemoAgent}
		return map[string]any{"agents": []any{c.demoAgent()}}, nil
	}
	var doc struct {
		Agents []struct {
			ID string `json:"agent_id"`
		} `json:"agents"`
	}
	if err := readJSON("--agents", cfg.Agents, &doc); err != nil {
		return nil, err
	}
	for _, a := range doc.Agents {
		c.agents = append(c.agents, a.ID)
	}
	slices.Sort(c.agents)
	if len(c.agents) == 0 {
		return nil, fmt.Errorf("--agents: %s names no agent", cfg.Agents)
	}
	var whole json.RawMessage
	return whole, readJSON("--agents", cfg.Agents, &whole)
}

// demoAgent has no version: its tools hang on the flags of each start, and what
// changes is the next version.
func (c *catalogue) demoAgent() map[string]any {
	// There is nobody to whom it could delegate.
	tools := slices.DeleteFunc(slices.Clone(c.tools), func(id string) bool { return id == builtinNamespace+"."+delegateTool })
	return map[string]any{
		"agent_id": DemoAgent, "name": "Demo", "organization": issuer.Organization,
		"harness": "native", "adapter_version": "1.1.0", "model_alias": modelAlias, "profile": "local", "tools": tools,
		"prompt": "You help people with the files of a sample folder. Use the tools that you are offered to look at them, " +
			"say what you found, and say so when you do not know something.",
	}
}

// alias is the model behind modelAlias.
func (m Model) alias() map[string]any {
	if m.BaseURL == "" {
		return map[string]any{"kind": "demo"}
	}
	a := map[string]any{"kind": "openai", "base_url": m.BaseURL, "model": m.Name}
	if m.KeyFile != "" {
		a["key_file"] = m.KeyFile
	}
	return a
}

func readJSON(flag, path string, v any) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if len(raw) > maxConfigBytes {
		return fmt.Errorf("%s: %s is larger than %d bytes", flag, path, maxConfigBytes)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %s: %w", flag, path, err)
	}
	return nil
}
