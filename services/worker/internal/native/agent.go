package native

import (
	"fmt"
	"slices"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/contextblock"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/native/model"
)

// maxDepth is how deep subagents nest.
const maxDepth = 2

// agent is who talks to the model in one conversation: the root, or a subagent.
type agent struct {
	// id of the agent in events, and its name for people.
	id, name string
	prompt   string
	depth    int
	// tools by the names that the model is offered, and in the order of offers.
	tools  map[string]*tool
	offers []*tool
}

// agents builds the root with all that is below it.
func (r *runtime) agents() (*agent, error) {
	all, err := r.catalogue()
	if err != nil {
		return nil, err
	}
	c := r.construction
	root := &agent{id: c.AgentID, name: c.AgentName, prompt: contextblock.Prompt(c.Prompt, c.UserContext), tools: make(map[string]*tool)}
	if !event.ValidID(root.id) {
		root.id = ID
	}
	for _, t := range all {
		root.offer(t)
	}
	for _, s := range r.options.Subagents {
		if err := r.delegate(root, s, all, "subagents"); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// catalogue has every tool but the subagents. No two have the same name, and no
// name leads to another tool than it says.
func (r *runtime) catalogue() ([]*tool, error) {
	var all []*tool
	for _, t := range r.construction.Tools {
		if strings.HasPrefix(t.ID, namespace) {
			return nil, fault.New(fault.HarnessOptionsInvalid, "native.Initialize",
				fault.Detail("tools[].tool_id: the namespace "+strings.TrimSuffix(namespace, ".")+" is the harness's own"))
		}
		all = append(all, brokered(t))
	}
	all = append(all, r.builtin()...)
	taken := make(map[string]bool)
	for _, t := range all {
		if _, err := t.Members(); err != nil {
			return nil, fault.Wrap(err, fault.InvalidRequest, "native.Initialize", fault.Detail("tools[].input_schema: one JSON object"))
		}
		if taken[t.Name] {
			return nil, collision(t.Name)
		}
		taken[t.Name] = true
	}
	for _, s := range r.options.Subagents {
		if taken[subagentPrefix+s.Name] {
			return nil, collision(subagentPrefix + s.Name)
		}
	}
	return all, nil
}

func collision(name string) error {
	return fault.New(fault.HarnessOptionsInvalid, "native.Initialize",
		fault.Detail("tools[].offered_name: "+name+" is the name of two tools; leave one of them out of the agent"))
}

func (a *agent) offer(t *tool) {
	a.tools[t.Name] = t
	a.offers = append(a.offers, t)
}

// delegate offers an agent a subagent.
func (r *runtime) delegate(to *agent, s Subagent, all []*tool, at string) error {
	if to.depth == maxDepth {
		return badOption(at, fmt.Sprintf("subagents nest at most %d deep", maxDepth))
	}
	sub := &agent{id: s.Name, name: s.Name, prompt: s.Prompt, depth: to.depth + 1, tools: make(map[string]*tool)}
	for _, id := range s.Tools {
		at := "subagents." + s.Name + ".tools"
		if name, ok := strings.CutPrefix(id, namespace+subagentPrefix); ok {
			below, known := r.subagent(name)
			if !known {
				return badOption(at, "a subagent that there is not")
			}
			if err := r.delegate(sub, below, all, at); err != nil {
				return err
			}
			continue
		}
		i := slices.IndexFunc(all, func(t *tool) bool { return t.id == id })
		if i < 0 || all[i].kind == toolForm || sub.tools[all[i].Name] != nil {
			return badOption(at, "an id that is no tool of the agent, that a subagent may not have, or that stands twice")
		}
		sub.offer(all[i])
	}
	to.offer(&tool{
		Offer: model.Offer{Name: subagentPrefix + s.Name, Description: s.Description, Schema: schema(taskSchema)},
		id:    namespace + subagentPrefix + s.Name, kind: toolSubagent, sub: sub,
	})
	return nil
}

func (r *runtime) subagent(name string) (Subagent, bool) {
	i := slices.IndexFunc(r.options.Subagents, func(s Subagent) bool { return s.Name == name })
	if i < 0 {
		return Subagent{}, false
	}
	return r.options.Subagents[i], true
}

// offered are the tools that make sense in this run.
func (l *level) offered() []model.Offer {
	var out []model.Offer
	for _, t := range l.agent.offers {
		if t.when == nil || t.when(l.run) {
			out = append(out, t.Offer)
		}
	}
	return out
}

// brokered is a tool behind the ToolBroker.
func brokered(t harness.Tool) *tool {
	return &tool{
		Offer: model.Offer{Name: t.OfferedName, Description: t.Description, Schema: t.InputSchema},
		id:    t.ID, kind: toolBrokered, approval: t.ApprovalRequired,
	}
}
