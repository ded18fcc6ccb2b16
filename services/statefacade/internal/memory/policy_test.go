package memory_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/services/statefacade/internal/memory"
)

func TestPolicyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory.json")
	if err := os.WriteFile(path, []byte(`{
		"shared_learning": ["demo"],
		"agent_sets": [{"name": "support", "agents": ["demo", "other"]}],
		"administrators": [{"organization": "acme", "subjects": ["user-1"]}],
		"approval": {"user": ["procedural"], "agent": []},
		"retention": {"days": {"month": 30}, "default": {"user": "month"}}
	}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := memory.LoadPolicy(path)
	if err != nil || len(p.SharedLearning) != 1 || p.AgentSets[0].Name != "support" || p.Retention.Days["month"] != 30 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := memory.LoadPolicy(""); err != nil || len(p.SharedLearning) != 0 {
		t.Errorf("without a file: %+v, %v", p, err)
	}
	if _, err := memory.LoadPolicy(path + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestPolicyRefused(t *testing.T) {
	for raw, want := range map[string]string{
		``:                      "",
		`{"shared_lerning":[]}`: "shared_lerning",
		`{"agent_sets":[{"name":"","agents":[]}]}`:                                 "agent_sets[0].name",
		`{"agent_sets":[{"name":"a","agents":["x"]},{"name":"b","agents":["x"]}]}`: "two sets",
		`{"administrators":[{"organization":"","subjects":["a"]}]}`:                "administrators[0]",
		`{"approval":{"world":[]}}`:                                                "no scope",
		`{"approval":{"user":["odd"]}}`:                                            "no kind",
		`{"retention":{"days":{"keep":3}}}`:                                        "retention.days.keep",
		`{"retention":{"days":{"a":0}}}`:                                           "retention.days.a",
		`{"retention":{"days":{"a":36501}}}`:                                       "retention.days.a",
		`{"retention":{"days":{"A b":1}}}`:                                         "retention.days",
		`{"retention":{"default":{"user":"a"}}}`:                                   "retention.default.user",
	} {
		if _, err := memory.ParsePolicy([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}
