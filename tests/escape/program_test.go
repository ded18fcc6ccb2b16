package escape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// attack is what the hostile program is to do, by its own names.
type attack map[string]any

// outcome is what came of an attack.
type outcome struct {
	reached bool
	detail  string
}

// UnmarshalJSON takes [reached, detail].
func (o *outcome) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&o.reached, &o.detail})
}

// outcomes reads what the program says of its attacks.
func outcomes(text string, attacks []attack) ([]outcome, error) {
	var all []outcome
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("%.500q: %w", text, err)
	}
	if len(all) != len(attacks) {
		return nil, fmt.Errorf("%d outcomes of %d attacks", len(all), len(attacks))
	}
	return all, nil
}

// attacks lets the program attack from its sandbox, and gives what came of it.
func (c *talk) attacks(t *testing.T, attacks ...attack) []outcome {
	t.Helper()
	all, err := outcomes(c.tell(t, encode(t, attacks)), attacks)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// outside lets the same program make attacks as a process of the test's own, where
// there are no walls.
func outside(t *testing.T, attacks ...attack) []outcome {
	t.Helper()
	var in bytes.Buffer
	for _, request := range []any{
		map[string]any{"type": "initialize", "model": map[string]any{}},
		map[string]any{"type": "turn", "message": encode(t, attacks)},
	} {
		in.WriteString(encode(t, request) + "\n")
	}
	cmd := exec.CommandContext(t.Context(), python, "-u", "-B", filepath.Join("testdata", "hostile.py"))
	var said, complained bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &said, &complained
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, complained.String())
	}
	var text strings.Builder
	for line := range strings.Lines(said.String()) {
		var m struct {
			Event struct {
				Data struct {
					Delta string `json:"delta"`
				} `json:"data"`
			} `json:"event"`
		}
		decode(t, []byte(line), &m)
		text.WriteString(m.Event.Data.Delta)
	}
	all, err := outcomes(text.String(), attacks)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
