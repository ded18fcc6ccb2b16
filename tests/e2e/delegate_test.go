package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// delegating are three agents: demo may delegate to helper, and helper to both
// others, of whom demo is at work already.
const delegating = `{"agents":[
{"agent_id":"demo","name":"Boss","organization":"local","harness":"native","adapter_version":"1.1.0","model_alias":"demo","tools":["builtin.delegate"],"delegates":["helper"]},
{"agent_id":"helper","name":"Helper","organization":"local","harness":"native","adapter_version":"1.1.0","model_alias":"demo","tools":["builtin.delegate","fs.*"],"approve_tools":["fs.list_directory"],"delegates":["demo","other"]},
{"agent_id":"other","name":"Other","organization":"local","harness":"native","adapter_version":"1.1.0","model_alias":"demo"}]}`

// delegate is a line of the demo model that lets another agent work.
func delegate(agent, message string) string {
	args, err := json.Marshal(map[string]string{"agent_id": agent, "message": message})
	if err != nil {
		panic(err) // of two strings
	}
	return ">>call builtin.delegate " + string(args)
}

// delegated is what the result of a call says of the agent.
type delegated struct {
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
	IsError    bool `json:"isError"`
	Structured struct {
		AgentID string `json:"agent_id"`
		RunID   string `json:"run_id"`
		Outcome string `json:"outcome"`
	} `json:"structuredContent"`
}

func (r turn) delegated(t *testing.T) (out []delegated) {
	t.Helper()
	for _, e := range r.of("tool.finished") {
		var d struct {
			Result delegated `json:"result"`
		}
		data(t, e, &d)
		if d.Result.Structured.AgentID != "" && len(e.Namespace) == 0 {
			out = append(out, d.Result)
		}
	}
	if len(out) == 0 {
		t.Fatalf("nothing was delegated: %s", r)
	}
	return out
}

func TestAnAgentDelegatesToAnother(t *testing.T) {
	t.Parallel()
	agents := filepath.Join(t.TempDir(), "agents.json")
	if err := os.WriteFile(agents, []byte(delegating), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := open(stack.Need(t), "--agents", agents)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("its work is told in a namespace of the call", w.delegates)
	t.Run("who works already, and who may not be asked", w.delegatesInACircle)
	t.Run("nobody can be asked", w.delegatesUnattended)
	t.Run("it ends with the run that delegates", w.delegatesAndIsCancelled)
}

func (w *world) delegates(t *testing.T) {
	name, line := w.sample(t)
	c := w.talk()
	r := c.tell(t, delegate("helper", read(name)))
	got := r.delegated(t)[0]
	if got.IsError || got.Structured.Outcome != "success" || !strings.Contains(got.Content[0].Text, line) {
		t.Errorf("the answer is %+v, without %q", got, line)
	}
	call := r.of("tool.started")[0]
	var started struct {
		ID   string `json:"tool_call_id"`
		Name string `json:"tool_name"`
	}
	data(t, call, &started)
	var inside []string
	for _, e := range r.events {
		if len(e.Namespace) == 0 {
			continue
		}
		if !slices.Equal(e.Namespace, []string{started.ID}) {
			t.Errorf("%s stands in %v", e.Type, e.Namespace)
		}
		inside = append(inside, e.Type)
	}
	if len(inside) < 6 || inside[0] != "namespace.entered" || inside[len(inside)-1] != "namespace.exited" || !slices.Contains(inside, "tool.finished") {
		t.Errorf("the agent's work is told as %v", inside)
	}
	// It is a run of its own, of the same caller, in a binding of its own.
	run, err := w.user.Run(t.Context(), got.Structured.RunID)
	if err != nil || run.State != "ended" || run.End != "success" || run.AgentID != "helper" || run.BindingID == r.BindingID {
		t.Fatalf("the run of the agent: %+v, %v", run, err)
	}
	until(t, "the agent's sandbox is given back", func(ctx context.Context) (bool, error) {
		b, err := w.operator.Binding(ctx, run.BindingID)
		return err == nil && b.Sandbox == nil && b.Ending == 0, err
	})
	// It has a history of its own too: what one call was told, the next does not know.
	again := c.tell(t, delegate("helper", "What do you remember?")).delegated(t)[0]
	if again.IsError || strings.Contains(again.Content[0].Text, line) {
		t.Errorf("another call of the same agent: %+v", again)
	}
}

func (w *world) delegatesInACircle(t *testing.T) {
	c := w.talk()
	r := c.tell(t, delegate("helper", delegate("demo", ">>say never")+"\n"+delegate("other", ">>say deep down")))
	var said []string
	for _, e := range r.of("tool.finished") {
		if len(e.Namespace) == 1 {
			said = append(said, string(e.Data))
		}
	}
	if len(said) != 2 || !strings.Contains(said[0]+said[1], "has delegated this work itself") || !strings.Contains(said[0]+said[1], "deep down") {
		t.Errorf("the two calls of the helper: %q", said)
	}
	deepest := 0
	for _, e := range r.events {
		deepest = max(deepest, len(e.Namespace))
	}
	if deepest != 2 {
		t.Errorf("the deepest namespace has %d parts", deepest)
	}
	refused := c.tell(t, delegate("other", ">>say never")).delegated(t)[0]
	if !refused.IsError || refused.Structured.RunID != "" || !strings.Contains(refused.Content[0].Text, "may not delegate to it") {
		t.Errorf("an agent that is not in its list: %+v", refused)
	}
}

func (w *world) delegatesUnattended(t *testing.T) {
	r := w.talk().tell(t, delegate("helper", `>>call fs.list_directory {"path":"."}`))
	got := r.delegated(t)[0]
	if got.Structured.Outcome != "success" {
		t.Errorf("the answer is %+v", got)
	}
	for _, e := range r.of("tool.error") {
		if len(e.Namespace) == 1 && strings.Contains(string(e.Data), "tool_denied") {
			return
		}
	}
	t.Errorf("a tool that wants an approval was called, or asked about: %s", r)
}

func (w *world) delegatesAndIsCancelled(t *testing.T) {
	c := w.talk()
	r := c.begin(t, delegate("helper", ">>say at work\n>>sleep 60000"))
	c.sees(t, r.RunID, "text.delta")
	var helper apiclient.Binding
	until(t, "the helper's run", func(ctx context.Context) (bool, error) {
		for after := ""; ; {
			page, next, err := w.operator.Bindings(ctx, after)
			if err != nil {
				return false, err
			}
			for _, b := range page {
				if b.AgentID == "helper" && b.Run != nil {
					helper = b
					return true, nil
				}
			}
			if after = next; next == "" {
				return false, nil
			}
		}
	})
	run := helper.Run.RunID
	if _, err := w.user.Cancel(t.Context(), r.RunID); err != nil {
		t.Fatal(err)
	}
	c.end(t, r).cancelled(t)
	until(t, "the helper's run is cancelled", func(ctx context.Context) (bool, error) {
		s, err := w.user.Run(ctx, run)
		if err == nil && s.State == "ended" && s.End != "cancelling" {
			return false, fmt.Errorf("it ended as %+v", s)
		}
		return s.State == "ended", err
	})
}
