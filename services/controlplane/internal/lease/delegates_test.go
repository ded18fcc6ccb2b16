package lease

import (
	"encoding/json"
	"testing"

	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// A model is told of the agents to which its own may delegate, and of nobody else;
// where there is nobody, it is not offered the tool.
func TestTheToolThatDelegatesNamesTheAgents(t *testing.T) {
	tool := worker.Tool{
		ID: "builtin.delegate", Description: "Delegates.", Delegates: true,
		InputSchema: []byte(`{"type":"object","properties":{"agent_id":{"type":"string"},"message":{"type":"string"}},"required":["agent_id","message"]}`),
	}
	other := worker.Tool{ID: "fs.read", InputSchema: []byte(`{"type":"object"}`)}
	if got := delegates([]worker.Tool{tool, other}, agents.Agent{}); len(got) != 1 || got[0].ID != "fs.read" {
		t.Errorf("an agent that may delegate to nobody: %+v", got)
	}
	got := delegates([]worker.Tool{other, tool}, agents.Agent{Delegates: []string{"helper", "writer"}})
	if len(got) != 2 || got[1].Description != "Delegates. The agents are: helper, writer." {
		t.Fatalf("%+v", got)
	}
	var schema struct {
		Properties map[string]struct {
			Enum []string `json:"enum"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(got[1].InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	if enum := schema.Properties["agent_id"].Enum; len(enum) != 2 || enum[0] != "helper" || len(schema.Properties) != 2 || len(schema.Required) != 2 {
		t.Errorf("%s", got[1].InputSchema)
	}
	if before := string(tool.InputSchema); before != `{"type":"object","properties":{"agent_id":{"type":"string"},"message":{"type":"string"}},"required":["agent_id","message"]}` {
		t.Errorf("the catalogue's own schema was changed: %s", before)
	}
}
