package conformance

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/conformance/internal/rpc/brokers"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// files are fixtures of what a harness is given to read.
func files() []fixture {
	return []fixture{
		{name: "files", keys: []string{"input.images", "input.documents"}, optional: true, run: (*bench).files},
		{name: "skill", keys: []string{"skills", "tool.builtin"}, optional: true, run: (*bench).skill},
	}
}

// files come with a turn. A harness that shows one to its model takes it; one
// that has only got it, whole, can do something else with it.
func (b *bench) files() {
	kept := map[string]harness.File{}
	contents := map[string][]byte{
		"input.images":    []byte("\x89PNG\r\n\x1a\n" + rand.Text()),
		"input.documents": []byte("%PDF-1.7\n" + rand.Text()),
	}
	kept["input.images"] = b.brokers.Keep("picture.png", "image/png", contents["input.images"])
	kept["input.documents"] = b.brokers.Keep("paper.pdf", "application/pdf", contents["input.documents"])
	i := Intent{Files: []string{"picture.png", "paper.pdf"}, Then: "I have seen them."}
	got := b.worker().startRun(b.nextRun(), b.setup.Phrase(i), kept["input.images"], kept["input.documents"]).end()
	b.wantFinished(got)
	b.wantText(got, "I have seen them.")
	for key, content := range contents {
		sum := sha256.Sum256(content)
		switch {
		case b.brokers.Asked(base64.StdEncoding.EncodeToString(content)) >= 0:
		case strings.Contains(got.text(), hex.EncodeToString(sum[:])):
			b.only(key, harness.Emulated)
		default:
			b.Errorf("%s: neither was it shown to the model, nor has the harness got it: %q", key, got.text())
		}
	}
}

// skill is one that the binding has. It is read with a tool of the harness's own,
// which no broker knows. A harness that tells its model of the skill, before it
// was read, has skills; another one has files.
func (b *bench) skill() {
	about, text := "about-"+rand.Text(), "secret-"+rand.Text()
	content := []byte("---\nname: greeting\ndescription: " + about + "\n---\n" + text + "\n")
	f := b.brokers.Keep("SKILL.md", "text/markdown", content)
	b.change = func(r *workerclient.Bind) {
		r.Manifests.Skills = []manifest.File{{Path: "greeting/SKILL.md", Handle: f.Handle, Size: f.Size, SHA256: sha256.Sum256(content), MIMEType: f.MIMEType}}
	}
	got := b.worker().turn(Intent{Read: "skills/greeting/SKILL.md", Then: "I have read it."})
	b.wantFinished(got)
	b.wantText(got, text, "I have read it.")
	started, finished := of[event.ToolStarted](got), of[event.ToolFinished](got)
	if len(started) != 1 || len(finished) != 1 || slices.Contains(brokers.IDs(), started[0].ToolName) || !strings.Contains(string(finished[0].Result), text) {
		b.Errorf("events: %s, %+v, %+v", got.types(), started, finished)
	}
	b.wantActed()
	if b.brokers.Asked(about) != 0 {
		b.only("skills", harness.Emulated)
	}
}
