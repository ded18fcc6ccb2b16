package api_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventtest"
	aguiencoder "cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/customsse"
)

// Every event has its row in the table of docs/protocol.md, and becomes in both
// encodings what that says: every frame of a row is in a golden stream, and no golden
// stream has another one.
func TestEachRowOfTheEncodingsHasItsGoldens(t *testing.T) {
	t.Parallel()
	custom, ag := map[event.Type]map[string]bool{}, map[event.Type]map[string]bool{}
	note := func(seen map[event.Type]map[string]bool, kind event.Type, frames ...string) {
		if seen[kind] == nil {
			seen[kind] = map[string]bool{}
		}
		for _, f := range frames {
			seen[kind][f] = true
		}
	}
	for name, g := range eventtest.Goldens() {
		c, a := customsse.NewEncoder(g.Carried), aguiencoder.NewEncoder("thread-1", "client-run-1", aguiencoder.Resumes(g.AskedBy, g.Carried))
		for _, e := range g.Events {
			kind := e.Type()
			cf, cerr := c.Encode(e)
			af, aerr := a.Encode(e)
			if cerr != nil || aerr != nil {
				t.Fatalf("%s: %s: %v, %v", name, kind, cerr, aerr)
			}
			// What closes before a run is cancelled or fails has rows of its own.
			if closes := kind == event.TypeRunCancelled || kind == event.TypeRunError; closes {
				cf, af = cf[len(cf)-1:], af[len(af)-1:]
			}
			note(custom, kind)
			note(ag, kind)
			for _, f := range cf {
				note(custom, kind, f.Event)
			}
			for _, f := range af {
				note(ag, kind, aguiName(t, f))
			}
		}
	}
	rows := encodingRows(t)
	for _, kind := range event.Types() {
		row, ok := rows[string(kind)]
		if !ok {
			t.Errorf("docs/protocol.md does not say how %s is encoded", kind)
			continue
		}
		delete(rows, string(kind))
		for encoding, pair := range map[string][2]map[string]bool{"custom": {row[0], custom[kind]}, "AG-UI": {row[1], ag[kind]}} {
			if pair[1] == nil || !maps.Equal(pair[0], pair[1]) {
				t.Errorf("%s in %s: docs/protocol.md says %q, the goldens have %q", kind, encoding,
					slices.Sorted(maps.Keys(pair[0])), slices.Sorted(maps.Keys(pair[1])))
			}
		}
	}
	if len(rows) > 0 {
		t.Errorf("docs/protocol.md has rows of no event: %v", slices.Sorted(maps.Keys(rows)))
	}
}

// aguiName is the type of an AG-UI event, with the outcome of a terminal.
func aguiName(t *testing.T, frame []byte) string {
	t.Helper()
	var f struct {
		Type    string
		Name    string
		Outcome struct{ Type string }
	}
	if err := json.Unmarshal(frame, &f); err != nil {
		t.Fatal(err)
	}
	switch f.Type {
	case "RUN_FINISHED":
		return f.Type + " " + f.Outcome.Type
	case "CUSTOM":
		return f.Type + " " + f.Name
	}
	return f.Type
}

// encodingRows are those of the table: by event, the custom frames and the AG-UI
// events.
func encodingRows(t *testing.T) map[string][2]map[string]bool {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(raw), "\n## Public encodings\n")
	if !ok {
		t.Fatal("docs/protocol.md does not say how events are encoded")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	// names are what stands between backquotes.
	names := func(cell string) map[string]bool {
		out := map[string]bool{}
		for i, part := range strings.Split(cell, "`") {
			if i%2 == 1 {
				out[part] = true
			}
		}
		return out
	}
	rows := map[string][2]map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| Event") {
			continue
		}
		for kind := range names(cells[0]) {
			if _, twice := rows[kind]; twice {
				t.Errorf("%s stands twice in the table", kind)
			}
			rows[kind] = [2]map[string]bool{names(cells[1]), names(cells[2])}
		}
	}
	return rows
}
