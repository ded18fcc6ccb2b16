package certify

import (
	"encoding/json"
	"fmt"
	"strings"
)

// phrase has a harness do things by what it is told: the demo model obeys lines, the
// scripted harness steps.
type phrase struct{ steps bool }

type step map[string]any

func (p phrase) script(steps ...step) string {
	if !p.steps {
		lines := make([]string, 0, len(steps))
		for _, s := range steps {
			switch s["do"] {
			case "text":
				lines = append(lines, fmt.Sprintf(">>repeat %d %s", max(1, asInt(s["times"])), s["text"]))
			case "delay":
				lines = append(lines, fmt.Sprintf(">>sleep %d", s["ms"]))
			case "call", "approve":
				args, _ := json.Marshal(s["args"]) //nolint:errchkjson // maps of strings
				lines = append(lines, fmt.Sprintf(">>call %s %s", s["tool"], args))
			case "recall":
				lines = append(lines, "What do you remember?")
			}
		}
		return strings.Join(lines, "\n")
	}
	for i, s := range steps {
		if s["do"] == "approve" {
			steps[i] = step{"do": "approve", "calls": []any{map[string]any{"tool": s["tool"], "args": s["args"]}}}
		}
	}
	raw, _ := json.Marshal(steps) //nolint:errchkjson // maps of strings and numbers
	return string(raw)
}

func asInt(v any) int { n, _ := v.(int); return n }

func say(text string) step { return step{"do": "text", "text": text} }

func repeat(times int, text string) step { return step{"do": "text", "text": text, "times": times} }

// busy keeps a run under way for longer than any check takes.
func busy() step { return step{"do": "delay", "ms": 60_000} }

// list calls the tool that every stack has.
func list() step {
	return step{"do": "call", "tool": "fs.list_directory", "args": map[string]string{"path": "."}}
}

// ask has a person decide on the same call.
func ask() step {
	s := list()
	s["do"] = "approve"
	return s
}

// recall has it say what it remembers.
func recall() step { return step{"do": "recall"} }
