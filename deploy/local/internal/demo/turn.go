package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/pkg/event"
)

// turn is what was seen of one run.
type turn struct {
	run        string
	binding    string
	epoch      uint32
	generation uint32

	text    strings.Builder
	results []string // of tools
	end     event.Data
}

// line is one event as the demo writes it.
type line struct {
	Turn       int             `json:"turn"`
	BindingID  string          `json:"binding_id"`
	Epoch      uint32          `json:"epoch"`
	Generation uint32          `json:"lease_generation"`
	Event      json.RawMessage `json:"event"`
}

// turn starts a run and writes its events as they come.
func (d *demo) turn(ctx context.Context, number int, message string) (*turn, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	started, err := d.cfg.API.Start(ctx, apiclient.StartRequest{AgentID: d.cfg.Agent, ConversationID: d.conversation, Message: message})
	if err != nil {
		return nil, fmt.Errorf("demo: turn %d: start: %w", number, err)
	}
	t := &turn{run: started.RunID, binding: started.BindingID, epoch: started.Epoch}
	err = d.cfg.API.Follow(ctx, t.run, func(e apiclient.Event) error {
		if t.generation == 0 {
			// A run has its sandbox, and so its generation, once it has an event.
			run, err := d.cfg.API.Run(ctx, t.run)
			if err != nil {
				return err
			}
			t.generation = run.Generation
		}
		t.take(e.Data)
		return d.out.Encode(line{number, t.binding, t.epoch, t.generation, e.Raw})
	})
	if err != nil {
		return nil, fmt.Errorf("demo: turn %d: %w", number, err)
	}
	return t, nil
}

func (t *turn) take(data event.Data) {
	switch v := data.(type) {
	case event.TextDelta:
		t.text.WriteString(v.Delta)
	case event.ToolFinished:
		t.results = append(t.results, texts(v.Result))
	}
	if data.Type().Terminal() {
		t.end = data
	}
}

// texts are all strings in a result, one a line: a result may be a string, or the
// content of an MCP result.
func texts(v event.Value) string {
	var whole any
	if err := json.Unmarshal([]byte(v), &whole); err != nil {
		return string(v)
	}
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			b.WriteString(v + "\n")
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(whole)
	return b.String()
}

// committed checks that the run succeeded and that its thread state is durable.
func (t *turn) committed() error {
	switch end := t.end.(type) {
	case event.RunFinished:
		if end.ThreadState == nil || end.ThreadState.Durability != event.DurabilityCommitted {
			return errors.New("it finished, but its thread state is not committed")
		}
		return nil
	case event.RunError:
		return fmt.Errorf("it ended in run.error: %s: %s", end.Code, end.Message)
	case nil:
		return errors.New("it has no end")
	default:
		return fmt.Errorf("it ended in %s", end.Type())
	}
}

// checkFirst checks that a tool read the line and that the agent said it.
func (t *turn) checkFirst(line string) error {
	if err := t.committed(); err != nil {
		return err
	}
	if len(t.results) == 0 {
		return errors.New("no tool was called")
	}
	if !strings.Contains(strings.Join(t.results, "\n"), line) {
		return fmt.Errorf("no result of a tool has the line %q", line)
	}
	if !strings.Contains(t.text.String(), line) {
		return fmt.Errorf("the agent did not say the line %q", line)
	}
	return nil
}

// checkSecond checks that the turn ran in another sandbox of the same binding, and
// that the agent remembers the line without having read it again.
func (t *turn) checkSecond(first *turn, line string) error {
	if err := t.committed(); err != nil {
		return err
	}
	switch {
	case t.binding != first.binding || t.epoch != first.epoch:
		return errors.New("it ran in another binding or epoch")
	case t.run == first.run:
		return errors.New("it is the same run")
	case t.generation != first.generation+1:
		return fmt.Errorf("it ran on lease generation %d, want %d", t.generation, first.generation+1)
	case len(t.results) > 0:
		return errors.New("it called a tool")
	case !strings.Contains(t.text.String(), line):
		return fmt.Errorf("the agent does not remember the line %q; it said: %q", line, t.text.String())
	}
	return nil
}
