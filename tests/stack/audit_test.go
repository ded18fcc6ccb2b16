package stack_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"cofferdam.dev/tests/stack"
)

// The local stack keeps the audit of tool calls: a line for the decision and one
// for the outcome, with nobody's name in them, for their owner alone.
func TestToolCallsAreAudited(t *testing.T) {
	data := folder(t)
	s := up(t, data)
	turn(t, s, "c-1", `>>call fs.list_directory {"path":"."}`)
	path := filepath.Join(data, "audit", "toolbroker.jsonl")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), bytes.Join(lines, []byte("\n")))
	}
	for i, want := range []struct{ kind, outcome string }{{"decision", ""}, {"outcome", "ok"}} {
		var r struct {
			Kind     string `json:"kind"`
			Decision string `json:"decision"`
			Outcome  string `json:"outcome"`
			ToolID   string `json:"tool_id"`
			Subject  string `json:"subject"`
		}
		if err := json.Unmarshal(lines[i], &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind != want.kind || r.Decision != "allowed" || r.Outcome != want.outcome || r.ToolID != "fs.list_directory" || r.Subject == "" {
			t.Errorf("line %d: %s", i, lines[i])
		}
		if bytes.Contains(lines[i], []byte(stack.User)) {
			t.Errorf("line %d has the name of the user: %s", i, lines[i])
		}
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
