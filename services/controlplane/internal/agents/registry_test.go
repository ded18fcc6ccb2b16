package agents_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
	"cofferdam.dev/services/controlplane/internal/harnesses"
)

const descriptor = `{"harness_id":"native","adapter_version":"1.0.0","contract_versions":[1],"execution_mode":"sandbox_pod",
"options_schema":{"type":"object","properties":{"temperature":{"type":"number","maximum":2},"Mode":{"type":"object","properties":{"a/b":{"type":"integer"}}}},"additionalProperties":false},
"capabilities":{"tool.mcp":{"level":"native"},"skills":{"level":"emulated"},"middleware.portable":{"level":"unsupported","reason":"x"},"memory.user_scope":{"level":"emulated"},
"memory.shared_policy":{"level":"unsupported"},"interrupt.tool_approval":{"level":"unavailable"}}}`

func registry(t testing.TB, s agents.Store) *agents.Registry {
	t.Helper()
	return registryWith(t, s, &agentstoretest.Contents{})
}

func registryWith(t testing.TB, s agents.Store, c agents.Contents) *agents.Registry {
	t.Helper()
	e, err := harnesses.Parse("default", true, "native", []byte(descriptor))
	if err != nil {
		t.Fatal(err)
	}
	return agents.NewRegistry(s, harnesses.New(e), c, slog.New(slog.DiscardHandler), time.Now)
}

// seeded are the agents that a file makes of an empty store.
func seeded(t testing.TB, file ...agents.Draft) map[string]agents.Agent {
	t.Helper()
	r := registry(t, &agentstoretest.Memory{})
	if err := r.Seed(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	all, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]agents.Agent{}
	for _, a := range all {
		out[a.ID] = a
	}
	return out
}

func draft(t testing.TB, id, members string) agents.Draft {
	t.Helper()
	d, err := agents.NewDraft(id, []byte(`{"harness":"native","adapter_version":"1.0.0","model_alias":"m"`+members+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func file(t testing.TB, agent string) []agents.Draft {
	t.Helper()
	d, err := parse(one(agent))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func put(t *testing.T, r *agents.Registry, d agents.Draft, expected, want uint32) {
	t.Helper()
	if a, err := r.Put(t.Context(), d, expected); err != nil || a.Version != want {
		t.Errorf("version %d, %v, want %d", a.Version, err, want)
	}
}

func refused(t *testing.T, r *agents.Registry, d agents.Draft, expected uint32, code fault.Code, details ...string) {
	t.Helper()
	_, err := r.Put(t.Context(), d, expected)
	if !fault.Is(err, code) {
		t.Fatalf("%v, want %s", err, code)
	}
	for _, detail := range details {
		if got := fault.From(err, "").Detail(); !strings.Contains(got, detail) {
			t.Errorf("the detail is %q and does not say %q", got, detail)
		}
	}
}

// A version never changes, and one that does not follow the newest is stale.
func TestPut(t *testing.T) {
	t.Parallel()
	r := registry(t, &agentstoretest.Memory{})
	one, two, three := draft(t, "a", `,"prompt":"one"`), draft(t, "a", `,"prompt":"two"`), draft(t, "a", `,"prompt":"three"`)
	refused(t, r, one, 1, fault.RevisionConflict, "expected_version: the newest is 0")
	put(t, r, one, 0, 1)
	put(t, r, one, 0, 1) // the answer was lost
	put(t, r, one, 1, 1) // nothing has changed
	refused(t, r, two, 0, fault.RevisionConflict, "the newest is 1")
	put(t, r, two, 1, 2)
	put(t, r, two, 1, 2)
	refused(t, r, three, 1, fault.RevisionConflict, "the newest is 2")
	refused(t, r, three, 3, fault.RevisionConflict)
	put(t, r, one, 2, 3) // back to what was
	for version, prompt := range map[uint32]string{1: "one", 2: "two", 3: "one"} {
		if a, err := r.At(t.Context(), "a", version); err != nil || a.Prompt != prompt || a.Version != version || a.Limits.MaxModelCalls == 0 {
			t.Errorf("version %d: %+v, %v", version, a, err)
		}
	}
	if _, err := r.At(t.Context(), "a", 4); !fault.Is(err, fault.NotFound) {
		t.Errorf("version 4: %v", err)
	}
	if _, err := r.Newest(t.Context(), "b"); !fault.Is(err, fault.NotFound) {
		t.Errorf("another agent: %v", err)
	}
}

// Of many who change one version at once one does, and the others are told.
func TestOfManyPutsOneWins(t *testing.T) {
	t.Parallel()
	store := &agentstoretest.Memory{}
	put(t, registry(t, store), draft(t, "a", ""), 0, 1)
	var wg sync.WaitGroup
	made := make(chan string, 8)
	for i := range 8 {
		wg.Go(func() {
			d := draft(t, "a", fmt.Sprintf(`,"prompt":"of %d"`, i))
			switch a, err := registry(t, store).Put(t.Context(), d, 1); {
			case err == nil:
				made <- a.Prompt
			case !fault.Is(err, fault.RevisionConflict):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(made)
	winner := <-made
	if another, more := <-made; winner == "" || more {
		t.Fatalf("%q and %q made version 2", winner, another)
	}
	if a, err := registry(t, store).Newest(t.Context(), "a"); err != nil || a.Version != 2 || a.Prompt != winner {
		t.Errorf("%+v, %v", a, err)
	}
}

// What is wrong is told by its field and its rule: what no agent may be, then what
// the harness does not take.
func TestPutNamesTheFields(t *testing.T) {
	t.Parallel()
	r := registry(t, &agentstoretest.Memory{})
	refused(t, r, draft(t, "a b", `,"tools":["fs"],"limits":{"max_model_calls":5000}`), 0, fault.InvalidRequest,
		"agent_id: 1 to 64", `tools: "fs" is not`, "limits.max_model_calls: at most 1000")
	refused(t, r, draft(t, "a", `,"harness_options":{"temperature":3,"secret-name":"secret-value","Mode":{"a/b":"x"}}`), 0, fault.HarnessOptionsInvalid,
		"harness_options.temperature: maximum", "harness_options: additionalProperties: secret-name", "harness_options.Mode.a~1b: type: integer")
	_, err := r.Put(t.Context(), draft(t, "a", `,"harness_options":{"secret-name":"secret-value"}`), 0)
	if d := fault.From(err, "").Detail(); strings.Contains(d, "secret-value") {
		t.Errorf("the detail has a value: %q", d)
	}
	refused(t, r, draft(t, "a", `,"middleware":[{"name":"redact"}],"approve_tools":["fs.write"],"memory_scopes":["user","agent"]`), 0, fault.HarnessOptionsInvalid,
		"middleware: the harness native lacks middleware.portable (unsupported)", "approve_tools: the harness native lacks interrupt.tool_approval (unavailable)",
		"memory_scopes: the harness native lacks memory.shared_policy")
	refused(t, r, draft(t, "a", `,"profile":"gpu"`), 0, fault.HarnessOptionsInvalid, "profile: no profile")
	for members, detail := range map[string]string{`"harness":"other","adapter_version":"1.0.0"`: "harness: no profile", `"harness":"native","adapter_version":"2.0.0"`: "adapter_version: workers have 1.0.0"} {
		d, err := agents.NewDraft("a", []byte(`{`+members+`,"model_alias":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		refused(t, r, d, 0, fault.HarnessOptionsInvalid, detail)
	}
	if all, err := r.List(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("refused, and there is %v, %v", all, err)
	}
	// What is there by default asks for nothing, and a policy that asks nobody does not either.
	put(t, r, draft(t, "a", `,"tools":["fs.*"],"approve_tools":["fs.write"],"interrupts":{"no_tool_approval":true},"harness_options":{"temperature":1.5}`), 0, 1)
}

// The file of the operator makes what is missing and takes nothing back.
func TestSeed(t *testing.T) {
	t.Parallel()
	const open = `{"agent_id":"a","harness":"native","adapter_version":"1.0.0","model_alias":"m","prompt":`
	store := &agentstoretest.Memory{}
	seed := func(agent string, version uint32, prompt string) {
		t.Helper()
		r := registry(t, store) // a process that is started again
		if err := r.Seed(t.Context(), file(t, agent)); err != nil {
			t.Fatal(err)
		}
		if a, err := r.Newest(t.Context(), "a"); err != nil || a.Version != version || a.Prompt != prompt {
			t.Errorf("%s: version %d %q, %v, want %d %q", agent, a.Version, a.Prompt, err, version, prompt)
		}
	}
	seed(open+`"one"}`, 1, "one")
	seed(strings.Replace(open, "{", `{ "version": 0, `, 1)+`"one" }`, 1, "one")
	seed(open+`"two"}`, 2, "two")
	put(t, registry(t, store), draft(t, "a", `,"prompt":"three"`), 2, 3)
	seed(open+`"two"}`, 3, "three") // what was put stays
	seed(open+`"one"}`, 3, "three")
	seed(strings.Replace(open, "{", `{"version":7,`, 1)+`"seven"}`, 7, "seven")
	seed(strings.Replace(open, "{", `{"version":2,`, 1)+`"two"}`, 7, "seven")
	for _, agent := range []string{
		strings.Replace(open, "{", `{"version":7,`, 1) + `"other"}`,
		strings.Replace(open, "{", `{"version":5,`, 1) + `"five"}`,
	} {
		err := registry(t, store).Seed(t.Context(), file(t, agent))
		if err == nil || !strings.Contains(err.Error(), "agents[0]") || !strings.Contains(err.Error(), "above 7") {
			t.Errorf("%s: %v", agent, err)
		}
	}
	if a, err := registry(t, store).At(t.Context(), "a", 7); err != nil || a.Prompt != "seven" {
		t.Errorf("%+v, %v", a, err)
	}
}

// Replicas that start at once seed one version.
func TestReplicasSeedOnce(t *testing.T) {
	t.Parallel()
	store := &agentstoretest.Memory{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := registry(t, store).Seed(t.Context(), file(t, `{"agent_id":"a","harness":"native","adapter_version":"1.0.0","model_alias":"m"}`)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if a, err := registry(t, store).Newest(t.Context(), "a"); err != nil || a.Version != 1 {
		t.Errorf("version %d, %v", a.Version, err)
	}
}

// away is a store that does not answer.
type away struct{ agentstoretest.Memory }

var errAway = errors.New("a-secret address")

func (*away) Newest(context.Context, string) (agents.Newest, error) { return agents.Newest{}, errAway }

func (*away) Digests(context.Context, string) (map[string]uint32, error) { return nil, errAway }

// A store that is away is no agent that is unknown.
func TestAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	r := registry(t, &away{})
	if _, err := r.Newest(t.Context(), "a"); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("newest: %v", err)
	}
	refused(t, r, draft(t, "a", ""), 0, fault.DependencyUnavailable)
	if err := r.Seed(t.Context(), file(t, full)); !errors.Is(err, errAway) {
		t.Errorf("seed: %v", err)
	}
}
