package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func demoEvent(turn, generation, sequence int, kind, data string) string {
	return fmt.Sprintf(`{"turn":%d,"binding_id":"b","epoch":0,"lease_generation":%d,"event":{"version":1,"type":%q,"run_id":"r%d",`+
		`"conversation_id":"c","sequence":%d,"timestamp":"2026-01-02T03:04:05Z","namespace":[],"data":%s}}`, turn, generation, kind, turn, sequence, data)
}

const committed = `{"outcome":"success","stop_reason":"end_turn","thread_state":{"durability":"committed","durable_revision":1,"head_ref":"h"}}`

func goodDemo() []string {
	return []string{
		demoEvent(1, 1, 0, "run.started", `{}`),
		demoEvent(1, 1, 1, "tool.finished", `{"tool_call_id":"t","result":"x"}`),
		demoEvent(1, 1, 2, "run.finished", committed),
		demoEvent(2, 2, 0, "run.started", `{}`),
		demoEvent(2, 2, 1, "run.finished", committed),
	}
}

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := checkDemo(strings.NewReader(strings.Join(goodDemo(), "\n")+"\n"), &out); err != nil {
		t.Fatal(err)
	}
	if want := `{"target":"check-demo","passed":true,"lines":5}` + "\n"; out.String() != want {
		t.Errorf("got %s want %s", out.String(), want)
	}
}

func TestDemoRefuses(t *testing.T) {
	change := func(line int, old, replacement string) func([]string) []string {
		return func(lines []string) []string {
			if !strings.Contains(lines[line], old) {
				t.Fatalf("line %d has no %s", line, old)
			}
			lines[line] = strings.Replace(lines[line], old, replacement, 1)
			return lines
		}
	}
	drop := func(from, to int) func([]string) []string {
		return func(lines []string) []string { return append(lines[:from], lines[to:]...) }
	}
	for name, spoil := range map[string]func([]string) []string{
		"nothing":       drop(0, 5),
		"text":          func(lines []string) []string { return append([]string{"building ..."}, lines...) },
		"empty line":    func(lines []string) []string { return append(lines, "") },
		"null":          func(lines []string) []string { return append(lines, "null") },
		"array":         func(lines []string) []string { return append(lines, "[]") },
		"two values":    change(0, "}}", "}} {}"),
		"unknown field": change(0, `"epoch":0`, `"epoch":0,"more":1`),
		"missing field": change(0, `"epoch":0,`, ``),
		"one turn":      drop(3, 5),
		"no second end": drop(4, 5),
		"no tool":       change(1, "tool.finished", "tool.error"),
		"gap":           change(2, `"sequence":2`, `"sequence":3`),
		"same generation": func(lines []string) []string {
			change(3, `"lease_generation":2`, `"lease_generation":1`)(lines)
			return change(4, `"lease_generation":2`, `"lease_generation":1`)(lines)
		},
		"generation changes": change(4, `"lease_generation":2`, `"lease_generation":3`),
		"another binding":    change(3, `"binding_id":"b"`, `"binding_id":"x"`),
		"another epoch":      change(4, `"epoch":0`, `"epoch":1`),
		"same run": func(lines []string) []string {
			change(3, `"r2"`, `"r1"`)(lines)
			return change(4, `"r2"`, `"r1"`)(lines)
		},
		"durability none":     change(2, "committed", "none"),
		"error":               change(4, "run.finished", "run.error"),
		"after the end":       func(lines []string) []string { return append(lines, demoEvent(2, 2, 2, "usage.updated", `{}`)) },
		"turn 3":              func(lines []string) []string { return append(lines, demoEvent(3, 3, 0, "run.started", `{}`)) },
		"turn 1 again":        func(lines []string) []string { return append(lines, demoEvent(1, 1, 3, "usage.updated", `{}`)) },
		"does not start":      change(0, "run.started", "text.started"),
		"starts twice":        change(1, "tool.finished", "run.started"),
		"turns in wrong rows": func(lines []string) []string { return append(lines[3:], lines[:3]...) },
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Join(spoil(goodDemo()), "\n")
			if text != "" {
				text += "\n"
			}
			var out bytes.Buffer
			if err := checkDemo(strings.NewReader(text), &out); err == nil {
				t.Fatal("taken")
			}
			if out.Len() > 0 {
				t.Errorf("figures of a failure: %s", out.String())
			}
		})
	}
}
