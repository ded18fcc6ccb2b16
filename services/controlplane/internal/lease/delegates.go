package lease

import (
	"encoding/json"
	"strings"

	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// delegates narrows the tool that delegates to the agents to which this one may. A
// model has to know who there is; what it may do is decided when it calls. An agent
// that may delegate to nobody is not offered the tool.
func delegates(tools []worker.Tool, a agents.Agent) []worker.Tool {
	out := tools[:0:0]
	for _, t := range tools {
		if t.Delegates {
			if len(a.Delegates) == 0 {
				continue
			}
			t.InputSchema = withAgents(t.InputSchema, a.Delegates)
			t.Description += " The agents are: " + strings.Join(a.Delegates, ", ") + "."
		}
		out = append(out, t)
	}
	return out
}

// withAgents lets agent_id be one of ids. A schema that is no longer what it was when
// this was written is left alone.
func withAgents(schema []byte, ids []string) []byte {
	var s map[string]any
	if json.Unmarshal(schema, &s) != nil {
		return schema
	}
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return schema
	}
	properties["agent_id"] = map[string]any{"type": "string", "enum": ids, "description": "Which agent is to work."}
	narrowed, err := json.Marshal(s)
	if err != nil {
		return schema
	}
	return narrowed
}
