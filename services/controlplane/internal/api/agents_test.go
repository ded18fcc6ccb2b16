package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agentfiles"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

const goodAgent = `{"expected_version":1,"harness":"native","adapter_version":"1.0.0","model_alias":"demo","prompt":"Be brief.","harness_options":{"temperature":1}}`

// A caller sees the agents that it may use, and no others.
func TestListAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	var got struct {
		Agents []struct {
			AgentID string `json:"agent_id"`
			Version uint32
			Harness string
			Tools   []string
		}
	}
	f.get(t, "/api/v1/agents").json(t, &got)
	if len(got.Agents) != 1 || got.Agents[0].AgentID != "demo" || got.Agents[0].Version == 0 || got.Agents[0].Harness == "" || got.Agents[0].Tools == nil {
		t.Errorf("%+v", got)
	}
	f.grants.revoke("user-1", authz.CanInvoke, authz.AgentID("demo"))
	if a := f.get(t, "/api/v1/agents"); a.status != http.StatusOK || string(a.body) != `{"agents":[]}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What a harness takes and can do is told to whoever may ask for agents.
func TestListHarnesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	var got struct {
		Harnesses []struct {
			Profile      string
			Enabled      bool
			ID           string          `json:"harness_id"`
			Schema       json.RawMessage `json:"options_schema"`
			Capabilities map[string]struct{ Level string }
		}
	}
	f.get(t, "/api/v1/harnesses").json(t, &got)
	if len(got.Harnesses) != 1 {
		t.Fatalf("%+v", got)
	}
	if h := got.Harnesses[0]; h.ID != "native" || h.Profile != "default" || !h.Enabled || len(h.Schema) == 0 || h.Capabilities["tool.mcp"].Level != "emulated" {
		t.Errorf("%+v", h)
	}
}

// put is a PUT of an agent at either address.
func (f *fixture) put(t *testing.T, base, subject, agent, body string) answer {
	t.Helper()
	return f.send(t, f.requestTo(t, base, subject, http.MethodPut, "/api/v1/agents/"+agent, body))
}

// An operator makes the next version of an agent, at either address; whoever comes
// late is told, and what stands is not changed.
func TestPutAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	type version struct {
		AgentID string `json:"agent_id"`
		Version uint32
		Prompt  string
		Limits  struct {
			MaxModelCalls uint32 `json:"max_model_calls"`
		}
	}
	want := version{"demo", 2, "Be brief.", struct {
		MaxModelCalls uint32 `json:"max_model_calls"`
	}{16}}
	var got version
	for _, base := range []string{f.public, f.operators} { // the second one is a repeat
		a := f.put(t, base, "operator-1", "demo", goodAgent)
		if a.json(t, &got); a.status != http.StatusOK || got != want {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	refused(t, f.put(t, f.public, "operator-1", "demo", strings.Replace(goodAgent, "brief", "long", 1)), http.StatusConflict, fault.RevisionConflict, "expected_version: the newest is 2")
	whole := f.send(t, f.requestTo(t, f.operators, "operator-1", http.MethodGet, "/api/v1/agents/demo", ""))
	if whole.json(t, &got); got != want {
		t.Errorf("%s", whole.body)
	}
	// What was read goes back, with its changes.
	changed := strings.Replace(strings.Replace(string(whole.body), "{", `{"expected_version":2,`, 1), "Be brief.", "Be kind.", 1)
	if a := f.put(t, f.operators, "operator-1", "demo", changed); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	old := f.send(t, f.requestTo(t, f.public, "operator-1", http.MethodGet, "/api/v1/agents/demo?version=2", ""))
	if old.json(t, &got); got != want {
		t.Errorf("%s", old.body)
	}
	for query, code := range map[string]fault.Code{"?version=9": fault.NotFound, "?version=0": fault.InvalidRequest, "?version=4294967296": fault.InvalidRequest} {
		a := f.send(t, f.requestTo(t, f.public, "operator-1", http.MethodGet, "/api/v1/agents/demo"+query, ""))
		refused(t, a, code.HTTPStatus(), code, "")
	}
	if a := f.put(t, f.public, "operator-1", "new.one", strings.Replace(goodAgent, ":1,", ":0,", 1)); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What is wrong with an agent is told by its field.
func TestPutAgentNamesTheField(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for _, c := range []struct {
		agent, body, detail string
		code                fault.Code
	}{
		{"demo", `[]`, "body: ", fault.InvalidRequest},
		{"demo", `{"expected_version":1,"Prompt":"x"}`, "body: /Prompt: ", fault.InvalidRequest},
		{"demo", strings.Replace(goodAgent, "{", `{"surprise":1,`, 1), "body: /surprise: ", fault.InvalidRequest},
		{"demo", strings.Replace(goodAgent, `"expected_version":1,`, "", 1), "expected_version: required", fault.InvalidRequest},
		{"demo", strings.Replace(goodAgent, ":1,", ":-1,", 1), "expected_version: required", fault.InvalidRequest},
		{"demo", strings.Replace(goodAgent, "{", `{"agent_id":"other",`, 1), "agent_id, version: ", fault.InvalidRequest},
		{"demo", strings.Replace(goodAgent, "{", `{"version":2,`, 1), "agent_id, version: ", fault.InvalidRequest},
		{"a:b", goodAgent, "agent_id: ", fault.InvalidRequest},
		{"demo", strings.Replace(goodAgent, `"model_alias":"demo"`, `"model_alias":"a b"`, 1), "model_alias: ", fault.InvalidRequest},
		{"demo", strings.Replace(goodAgent, `"temperature":1`, `"temperature":3`, 1), "harness_options.temperature: maximum", fault.HarnessOptionsInvalid},
		{"demo", strings.Replace(goodAgent, "{", `{"memory_scopes":["user","agent"],`, 1), "memory_scopes: ", fault.HarnessOptionsInvalid},
	} {
		refused(t, f.put(t, f.public, "operator-1", c.agent, c.body), c.code.HTTPStatus(), c.code, c.detail)
	}
	var got struct{ Version uint32 }
	if f.send(t, f.requestTo(t, f.public, "operator-1", http.MethodGet, "/api/v1/agents/demo", "")).json(t, &got); got.Version != 1 {
		t.Errorf("version %d", got.Version)
	}
}

// What an agent has is shown to operators by name and SHA-256, and goes back so; what is
// not kept is told by its field.
func TestTheSkillsOfAnAgent(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(folder, "greeting"), 0o700), os.WriteFile(filepath.Join(folder, "greeting", "SKILL.md"), []byte("say hello"), 0o600)); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, options{domain: runstest.Options{Folder: folder, Catalogue: `{"agents":[{"agent_id":"demo","harness":"native","adapter_version":"1.0.0","model_alias":"demo","skills":["greeting"],"files":["greeting/SKILL.md"]}]}`}})
	whole := f.send(t, f.requestTo(t, f.operators, "operator-1", http.MethodGet, "/api/v1/agents/demo", ""))
	var got struct {
		Skills, Files []agentfiles.File
	}
	sum := sha256.Sum256([]byte("say hello"))
	want := agentfiles.File{Path: "greeting/SKILL.md", SHA256: hex.EncodeToString(sum[:]), Size: 9, MIMEType: "text/markdown"}
	if whole.json(t, &got); len(got.Skills) != 1 || got.Skills[0] != want || len(got.Files) != 1 || got.Files[0].Path != "SKILL.md" || got.Files[0].SHA256 != want.SHA256 {
		t.Fatalf("%s", whole.body)
	}
	back := strings.Replace(string(whole.body), "{", `{"expected_version":1,"prompt":"x",`, 1)
	back = strings.Replace(back, `"prompt":"",`, "", 1)
	if a := f.put(t, f.operators, "operator-1", "demo", back); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	for body, detail := range map[string]string{
		strings.Replace(goodAgent, "{", `{"skills":["greeting"],`, 1):                                                            "body: /skills",
		strings.Replace(goodAgent, "{", `{"skills":[{"path":"a/SKILL.md","sha256":"`+strings.Repeat("0", 64)+`","size":9}],`, 1): "skills[0].sha256: no content",
		strings.Replace(goodAgent, "{", `{"files":[{"path":"../a","sha256":"`+want.SHA256+`","size":9}],`, 1):                    "files[0].path: ",
	} {
		refused(t, f.put(t, f.operators, "operator-1", "demo", strings.Replace(body, `"expected_version":1`, `"expected_version":2`, 1)), http.StatusBadRequest, fault.InvalidRequest, detail)
	}
}

// Who may use an agent may not change it, nor read what only operators may.
func TestWhoMayChangeAgents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	for _, base := range []string{f.public, f.operators} {
		refused(t, f.put(t, base, "user-1", "demo", goodAgent), http.StatusForbidden, fault.AccessDenied, "")
		refused(t, f.send(t, f.requestTo(t, base, "user-1", http.MethodGet, "/api/v1/agents/demo", "")), http.StatusForbidden, fault.AccessDenied, "")
	}
}
