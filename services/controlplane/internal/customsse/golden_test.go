package customsse_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"cofferdam.dev/pkg/event/eventtest"
	"cofferdam.dev/services/controlplane/internal/customsse"
)

var update = flag.Bool("update", false, "write the goldens anew")

// testdata/streams has what each golden run becomes: the name of a frame and its
// data, one frame a line.
func TestGoldenStreams(t *testing.T) {
	t.Parallel()
	goldens := eventtest.Goldens()
	for name, g := range goldens {
		e := customsse.NewEncoder(g.Carried)
		if g.Revision > 0 {
			e.SetRevision(g.Revision)
		}
		var got []byte
		for _, f := range encode(t, e, g.Events...) {
			got = append(append(append(append(got, f.Event...), ' '), f.Data...), '\n')
		}
		file := filepath.Join("testdata", "streams", name+".txt")
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
	}
	files, err := filepath.Glob("testdata/streams/*")
	if err != nil || len(files) != len(goldens) {
		t.Errorf("%d files for %d goldens (%v)", len(files), len(goldens), err)
	}
}
