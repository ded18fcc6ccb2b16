package bindingtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The numbers in docs/protocol.md are those of the suite.
func TestDocsListEveryInvariant(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range Invariants() {
		if line := fmt.Sprintf("| %s | %s |", i.ID, i.Text); !strings.Contains(string(raw), line+"\n") {
			t.Errorf("docs/protocol.md lacks the line\n%s", line)
		}
	}
	if n := strings.Count(string(raw), "\n| T"); n != len(Invariants()) {
		t.Errorf("docs/protocol.md has %d T lines, the suite %d", n, len(Invariants()))
	}
}
