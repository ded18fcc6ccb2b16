package agui_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cofferdam.dev/pkg/event/eventtest"
	"cofferdam.dev/services/controlplane/internal/agui"
)

var update = flag.Bool("update", false, "write the goldens anew")

// encodeGolden encodes a whole run as the API does.
func encodeGolden(t *testing.T, g eventtest.Golden, opts ...agui.Option) [][]byte {
	t.Helper()
	e := agui.NewEncoder(threadID, clientID, append(opts, agui.Resumes(g.AskedBy, g.Carried))...)
	if g.Revision > 0 {
		e.SetRevision(g.Revision)
	}
	return encode(t, e, g.Events...)
}

// testdata/streams has what each golden run becomes, one frame a line; the module
// tests reads every one of them with the real client.
func TestGoldenStreams(t *testing.T) {
	t.Parallel()
	goldens := eventtest.Goldens()
	for name, g := range goldens {
		frames := encodeGolden(t, g, echoed(t))
		got := append(bytes.Join(frames, []byte("\n")), '\n')
		file := filepath.Join("testdata", "streams", name+".jsonl")
		if *update {
			if err := os.WriteFile(file, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s became\n%s", name, got)
		}
		r := reader{threadID: threadID, runID: clientID, echo: 1}
		for _, c := range g.Carried {
			r.waiting = append(r.waiting, g.AskedBy+"/call/"+c.ToolCallID)
		}
		if err := r.read(frames); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	files, err := filepath.Glob("testdata/streams/*")
	if err != nil || len(files) != len(goldens) {
		t.Errorf("%d files for %d goldens (%v)", len(files), len(goldens), err)
	}
}

// An encoder that is asked again says the same.
func TestEncodingIsAFunctionOfTheRun(t *testing.T) {
	t.Parallel()
	for name, g := range eventtest.Goldens() {
		if first := encodeGolden(t, g); !slices.EqualFunc(first, encodeGolden(t, g), bytes.Equal) {
			t.Errorf("%s is encoded in two ways", name)
		}
	}
}
