package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLineBytes is far above the longest event line.
const maxLineBytes = 16 << 20

// demoLine is one line of `make demo`.
type demoLine struct {
	Turn            *int    `json:"turn"`
	BindingID       *string `json:"binding_id"`
	Epoch           *int64  `json:"epoch"`
	LeaseGeneration *int64  `json:"lease_generation"`
	Event           *struct {
		Version        int             `json:"version"`
		Type           string          `json:"type"`
		RunID          string          `json:"run_id"`
		ConversationID string          `json:"conversation_id"`
		Sequence       int64           `json:"sequence"`
		Timestamp      string          `json:"timestamp"`
		Namespace      []string        `json:"namespace"`
		Data           json.RawMessage `json:"data"`
	} `json:"event"`
}

// demoTurn is what was seen of one turn.
type demoTurn struct {
	events     int64
	runID      string
	generation int64
	tools      int
	committed  bool
	terminal   bool
}

// checkDemo reads what `make demo` wrote on stdout and checks what the README
// promises: JSON lines and nothing else; two turns of one binding and one
// epoch, the second on lease generation 2; a tool finished in the first; each
// turn without a gap and ended by run.finished with a committed thread state.
//
// It shares no code with what it checks.
func checkDemo(in io.Reader, out io.Writer) error {
	var (
		turns [2]demoTurn
		first demoLine
		count int
	)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLineBytes)
	for lines.Scan() {
		count++
		line, err := parseDemoLine(lines.Bytes())
		if err != nil {
			return fmt.Errorf("line %d: %w: %.200q", count, err, lines.Text())
		}
		if count == 1 {
			first = line
		}
		if *line.BindingID != *first.BindingID || *line.Epoch != *first.Epoch {
			return fmt.Errorf("line %d: binding %s epoch %d, began with %s epoch %d", count, *line.BindingID, *line.Epoch, *first.BindingID, *first.Epoch)
		}
		if *line.Turn < 1 || *line.Turn > len(turns) {
			return fmt.Errorf("line %d: turn %d, want 1 or 2", count, *line.Turn)
		}
		if *line.Turn == 1 && turns[1].events > 0 {
			return fmt.Errorf("line %d: turn 1 goes on after turn 2 began", count)
		}
		if err := turns[*line.Turn-1].add(line); err != nil {
			return fmt.Errorf("line %d: turn %d: %w", count, *line.Turn, err)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for i, turn := range turns {
		switch {
		case turn.events == 0:
			return fmt.Errorf("turn %d is missing", i+1)
		case !turn.terminal:
			return fmt.Errorf("turn %d has no end", i+1)
		case !turn.committed:
			return fmt.Errorf("turn %d did not end in run.finished with durability committed", i+1)
		case turn.generation != int64(i+1):
			return fmt.Errorf("turn %d ran on lease generation %d, want %d", i+1, turn.generation, i+1)
		}
	}
	if turns[0].tools == 0 {
		return errors.New("turn 1 has no tool.finished")
	}
	if turns[0].runID == turns[1].runID {
		return errors.New("both turns have the same run id")
	}
	return json.NewEncoder(out).Encode(struct {
		Target string `json:"target"`
		Passed bool   `json:"passed"`
		Lines  int    `json:"lines"`
	}{"check-demo", true, count})
}

func parseDemoLine(text []byte) (demoLine, error) {
	var line demoLine
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&line); err != nil {
		return demoLine{}, fmt.Errorf("not a line of the demo: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return demoLine{}, errors.New("more than one value on the line")
	}
	if line.Turn == nil || line.BindingID == nil || *line.BindingID == "" || line.Epoch == nil || line.LeaseGeneration == nil || line.Event == nil {
		return demoLine{}, errors.New("a field is missing")
	}
	return line, nil
}

// add takes in one event of the turn.
func (t *demoTurn) add(line demoLine) error {
	event := line.Event
	switch {
	case t.terminal:
		return fmt.Errorf("%s after the end", event.Type)
	case event.Sequence != t.events:
		return fmt.Errorf("sequence %d, want %d", event.Sequence, t.events)
	case event.Version != 1 || event.RunID == "" || event.ConversationID == "":
		return errors.New("no canonical event of version 1")
	case (event.Sequence == 0) != (event.Type == "run.started"):
		return fmt.Errorf("%s at sequence %d", event.Type, event.Sequence)
	case t.events > 0 && (event.RunID != t.runID || *line.LeaseGeneration != t.generation):
		return errors.New("the run or its lease generation changed within the turn")
	}
	t.events++
	t.runID, t.generation = event.RunID, *line.LeaseGeneration
	switch event.Type {
	case "tool.finished":
		t.tools++
	case "run.finished":
		var data struct {
			ThreadState struct {
				Durability string `json:"durability"`
			} `json:"thread_state"`
		}
		if err := json.Unmarshal(event.Data, &data); err != nil {
			return fmt.Errorf("run.finished: %w", err)
		}
		t.terminal, t.committed = true, data.ThreadState.Durability == "committed"
	case "run.error", "run.cancelled", "run.interrupted":
		t.terminal = true
	}
	return nil
}
