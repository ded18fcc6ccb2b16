package native

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
)

var update = flag.Bool("update", false, "write the goldens anew")

// TestGolden plays a whole answer of each wire as providers publish it, and holds
// what is sent next, which has all kinds of parts in it, against a golden.
func TestGolden(t *testing.T) {
	eachWire(t, func(t *testing.T, w wire) {
		played, err := os.ReadFile(filepath.Join("testdata", string(w.name)+".sse"))
		must(t, err)
		s := newStand(t, on(w, options(`{"reasoning_effort":"low","model_retries":0}`), func(c *harness.Construction) { c.Model.Images, c.Model.Documents = true, true })...)
		s.files.content["png"], s.files.content["pdf"], s.files.content["txt"] = "\x89PNG", "%PDF", "notes"
		s.model.play(func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			_, _ = out.Write(played)
		}, w.says(reply{text: "ok", stop: "stop", input: 60, output: 1, cached: 50}))
		got := s.run(t, "run-1", "look",
			harness.File{Handle: "png", DisplayName: "a.png", MIMEType: "image/png", Size: 4},
			harness.File{Handle: "pdf", DisplayName: "b.pdf", MIMEType: "application/pdf", Size: 4},
			harness.File{Handle: "txt", DisplayName: "c.txt", MIMEType: "text/plain", Size: 5})
		got.wantFinished(t, "stop")
		want := "run.started reasoning.started reasoning.delta reasoning.finished text.started text.delta text.finished tool.started tool.finished usage.updated " +
			"text.started text.delta text.delta text.finished usage.updated run.finished"
		if got.types() != want {
			t.Errorf("events: %s", got.types())
		}
		if u := of[event.UsageUpdated](got)[0]; *u.InputTokens != 50 || *u.OutputTokens != 9 || *u.CachedInputTokens != 20 {
			t.Errorf("usage: %+v", u)
		}
		if started := of[event.ToolStarted](got)[0]; started.Arguments != `{"path":"a"}` {
			t.Errorf("tool.started: %+v", started)
		}

		var sent bytes.Buffer
		must(t, json.Indent(&sent, []byte(s.model.asked()[1].raw), "", "  "))
		sent.WriteByte('\n')
		path := filepath.Join("testdata", string(w.name)+".request.json")
		if *update {
			must(t, os.WriteFile(path, sent.Bytes(), 0o600))
		}
		golden, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(sent.Bytes(), golden) {
			t.Errorf("the model is sent\n%s", sent.Bytes())
		}
	})
}
