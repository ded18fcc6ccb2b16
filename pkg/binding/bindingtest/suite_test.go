package bindingtest

import (
	"fmt"
	"regexp"
	"testing"
)

// TestInvariantsAreNumbered: docs/protocol.md names them by number.
func TestInvariantsAreNumbered(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for i, v := range Invariants() {
		if v.ID != fmt.Sprintf("T%02d", i+1) || names[v.Name] || !regexp.MustCompile(`^[a-z_]+$`).MatchString(v.Name) || v.Text == "" || v.check == nil {
			t.Errorf("invariant %d is %s_%s", i+1, v.ID, v.Name)
		}
		names[v.Name] = true
	}
}
