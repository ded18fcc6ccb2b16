package stack_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/blob/s3test"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// A result that is too large for an event: the event has the projection and a
// reference, and the file broker the whole, which ToolBroker stored with what the
// capability service gave it in exchange for the worker's capability.
func TestALargeResultIsKeptByTheFileBroker(t *testing.T) {
	data := folder(t)
	resultsAreKept(t, data, up(t, data))
}

// Contents that go to a bucket are the same ones, and no folder has any of them.
func TestContentsGoToABucket(t *testing.T) {
	data, bucket := folder(t), s3test.Server(t)
	resultsAreKept(t, data, up(t, data, "--blob-url", bucket.URL, "--blob-credentials-file", bucket.CredentialsFile))
	store, err := blobstore.Open(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	kept := 0
	if err := store.Each(t.Context(), "objects", func(blob.Entry) error { kept++; return nil }); err != nil || kept < 2 {
		t.Errorf("the bucket has %d objects, %v", kept, err)
	}
	for _, name := range []string{"files", "snapshots"} {
		if _, err := os.Stat(filepath.Join(data, name)); !os.IsNotExist(err) {
			t.Errorf("there is a folder %s: %v", name, err)
		}
	}
}

func resultsAreKept(t *testing.T, data string, s *stack.Stack) {
	t.Helper()
	content := strings.Repeat("all of it ", 30_000)
	if err := os.WriteFile(filepath.Join(data, "sample", "large.txt"), []byte(content), 0o644); err != nil {
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
	kept, err := c.Do(ctx, http.MethodGet, "/api/v1/files/"+finished.ResultRef, "", nil)
	if err != nil || kept.Status != http.StatusOK {
		t.Fatalf("%+v, %v", kept, err)
	}
	other, err := s.Client(ctx, "user-nobody")
	if err != nil {
		t.Fatal(err)
	}
	if a, err := other.Do(ctx, http.MethodGet, "/api/v1/files/"+finished.ResultRef, "", nil); err != nil || a.Status != http.StatusNotFound {
		t.Errorf("another caller has it: %d, %v", a.Status, err)
	}
	var whole struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(kept.Body, &whole); err != nil || len(whole.Content) != 1 || whole.Content[0].Text != content {
		t.Errorf("%d bytes are kept, of %d of text; %v", len(kept.Body), len(content), err)
	}
	storedFileIsGiven(ctx, t, c, s.Agents[0])
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// storedFileIsGiven stores a file, reads it again, and gives it to a run.
func storedFileIsGiven(ctx context.Context, t *testing.T, c *apiclient.Client, agent string) {
	t.Helper()
	content := strings.Repeat("0123456789", 100_000)
	a, err := c.Do(ctx, http.MethodPost, "/api/v1/files?conversation_id=c-1&agent_id="+agent, "text/plain", strings.NewReader(content))
	var stored struct {
		FileID string `json:"file_id"`
		SHA256 string `json:"sha256"`
	}
	if err == nil {
		err = json.Unmarshal(a.Body, &stored)
	}
	sum := sha256.Sum256([]byte(content))
	if err != nil || a.Status != http.StatusCreated || stored.SHA256 != hex.EncodeToString(sum[:]) {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	back, err := c.Do(ctx, http.MethodGet, "/api/v1/files/"+stored.FileID, "", nil)
	if err != nil || string(back.Body) != content {
		t.Errorf("%d, %d bytes, %v", back.Status, len(back.Body), err)
	}
	run, err := c.Start(ctx, apiclient.Start{AgentID: agent, ConversationID: "c-1", Message: "what is in it?", Files: []apiclient.File{{FileID: stored.FileID}}})
	if err != nil {
		t.Fatal(err)
	}
	events, err := c.Follow(ctx, run.RunID)
	if err != nil || events[len(events)-1].Type != "run.finished" {
		t.Errorf("%s, %v", events[len(events)-1].Raw, err)
	}
}
