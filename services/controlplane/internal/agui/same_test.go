package agui_test

import (
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
)

// same compares the frames of an event with those that are wanted, in which #
// stands for the timestamp.
func same(t *testing.T, got [][]byte, ev event.Event, want []string) {
	t.Helper()
	at := `"timestamp":` + strconv.FormatInt(ev.Timestamp.UnixMilli(), 10)
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = string(got[i])
		}
		if i < len(want) {
			w = strings.ReplaceAll(want[i], "#", at)
		}
		if g != w {
			t.Errorf("frame %d is\n%s\nand not\n%s", i, g, w)
		}
	}
}
