package stack_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// A result that is too large for an event: the event has the projection and a
// reference, and the file broker the whole, which ToolBroker stored with what the
// capability service gave it in exchange for the worker's capability.
func TestALargeResultIsKeptByTheFileBroker(t *testing.T) {
	data := folder(t)
	s := up(t, data)
	content := strings.Repeat("all of it ", 30_000)
	if err := os.WriteFile(filepath.Join(data, "sample", "large.txt"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), turnTimeout)
	defer cancel()
	c, err := s.Client(ctx, stack.User)
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.Start(ctx, apiclient.Start{
		AgentID: s.Agents[0], ConversationID: "c-1", Message: `>>call fs.read_text_file {"path":"large.txt"}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Follow(ctx, run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var finished struct {
		Result    json.RawMessage `json:"result"`
		ResultRef string          `json:"result_ref"`
	}
	for _, e := range events {
		if e.Type == "tool.finished" {
			if err := json.Unmarshal(e.Data, &finished); err != nil {
				t.Fatal(err)
			}
		}
	}
	if finished.ResultRef == "" || len(finished.Result) > 64<<10 {
		t.Fatalf("result_ref %q beside %d bytes; events end with %s", finished.ResultRef, len(finished.Result), events[len(events)-1].Raw)
	}
	found, err := filepath.Glob(filepath.Join(data, "files", "objects", "*", finished.ResultRef))
	if err != nil || len(found) != 1 {
		t.Fatalf("the file broker has %v, %v", found, err)
	}
	kept, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	var whole struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(kept, &whole); err != nil || len(whole.Content) != 1 || whole.Content[0].Text != content {
		t.Errorf("%d bytes are kept, of %d of text; %v", len(kept), len(content), err)
	}
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}
