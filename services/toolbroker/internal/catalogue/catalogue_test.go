package catalogue_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
	"cofferdam.dev/services/toolbroker/internal/project"
)

func tool(t *testing.T, c *catalogue.Catalogue, id string) call.Tool {
	t.Helper()
	found, ok := c.Tool(id)
	if !ok {
		t.Fatalf("there is no tool %s", id)
	}
	return found
}

func invoke(t *testing.T, tool call.Tool) (project.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reply, err := tool.Call(ctx, call.Behalf{}, json.RawMessage(`{}`), time.Time{}, nil)
	return reply.Result, err
}

func ids(found []catalogue.Descriptor) string {
	var out []string
	for _, d := range found {
		out = append(out, d.ID)
	}
	return strings.Join(out, " ")
}

func codes(missing []catalogue.Unavailable) string {
	var out []string
	for _, u := range missing {
		out = append(out, u.ID+"="+string(u.Code))
	}
	return strings.Join(out, " ")
}

func TestListDescribesWhatTheOperatorAllows(t *testing.T) {
	t.Parallel()
	s := stdio(t, "x", []string{"echo", "typed", "not_there"})
	s.ToolOptions = map[string]catalogue.ToolOptions{"echo": {ReadOnly: true}}
	c, log := run(t, s)
	found, missing := c.List([]string{"x.*", "x.echo", "x.count", "y.*", "y.a", "nonsense", "x.count"})
	if got := ids(found); got != "x.echo x.typed" {
		t.Errorf("found %s", got)
	}
	if got := codes(missing); got != "x.not_there=tool_unavailable x.count=tool_not_allowed y.*=tool_not_allowed y.a=tool_not_allowed nonsense=tool_not_allowed" {
		t.Errorf("missing %s", got)
	}
	if _, ok := c.Tool("x.count"); ok {
		t.Error("a tool that the operator did not name can be called")
	}
	if d := found[0]; d.OfferedName != "x_echo" || d.Description != "Does echo.\ufffd[2J" || string(d.InputSchema) != `{"type":"object"}` || !d.ReadOnly || found[1].ReadOnly {
		t.Errorf("%+v", d)
	}
	if !strings.Contains(log.String(), `"tool_id":"x.not_there"`) {
		t.Error("nobody is told of a tool that is not there")
	}
}

// One broken tool takes only itself out (claude-code 77106, Qwen-Agent 873), and
// so does one broken server.
func TestWhatIsBrokenTakesOnlyItselfOut(t *testing.T) {
	t.Parallel()
	malformed := []string{
		"no_schema", "schema_is_text", "schema_of_no_object", "bad_type", "bad_pattern", "dangling_ref", "remote_ref", "file_ref", "own_metaschema",
		"endless_ref", "name_twice", "case_twice", "bad_bytes", "deep_schema", "large_schema", "long_description", "odd_fields",
	}
	c, _ := run(t,
		stdio(t, "a", append([]string{"echo"}, malformed...), "-mode", hostile.ModeMalformed),
		stdio(t, "b", []string{"echo"}, "-mode", hostile.ModeExit),
		stdio(t, "c", []string{"echo"}, "-mode", hostile.ModeEndless),
		catalogue.Server{Namespace: "d", Transport: catalogue.TransportStdio, Command: []string{"/nonexistent"}, Tools: []string{"echo"}},
		stdio(t, "e", []string{"echo"}))
	found, missing := c.List([]string{"a.*", "b.*", "c.*", "d.*", "e.*"})
	if got := ids(found); got != "a.echo a.case_twice a.long_description a.odd_fields e.echo" {
		t.Errorf("found %s", got)
	}
	if len(missing) != len(malformed) { // three of them are only odd, and three servers are away
		t.Errorf("missing %s", codes(missing))
	}
	for _, d := range found {
		if len(d.Description) > 4<<10 {
			t.Errorf("%s is described in %d bytes", d.ID, len(d.Description))
		}
	}
	nobody := tool(t, c, "b.echo")
	if err := nobody.Check(nil); !errors.Is(err, call.ErrUndefined) {
		t.Errorf("arguments of a tool of which nobody knows what it is: %v", err)
	}
	if _, err := invoke(t, nobody); !errors.Is(err, call.ErrNotSent) {
		t.Errorf("a call of a tool of which nobody knows what it is: %v", err)
	}
	for _, id := range []string{"a.echo", "e.echo"} {
		if r, err := invoke(t, tool(t, c, id)); err != nil || r.IsError {
			t.Errorf("%s: %s %v", id, r.JSON, err)
		}
	}
}

func TestAServerThatEndsComesBack(t *testing.T) {
	t.Parallel()
	effects := filepath.Join(t.TempDir(), "effects")
	c, log := run(t, stdio(t, "x", []string{"crash", "count"}, "-effects", effects))
	for round := range 3 {
		if _, err := invoke(t, tool(t, c, "x.crash")); err == nil || errors.Is(err, call.ErrNotSent) {
			t.Fatalf("round %d: a call in which the server died: %v", round, err)
		}
		wait(t, func() bool {
			r, err := invoke(t, tool(t, c, "x.count"))
			if err != nil && !errors.Is(err, call.ErrNotSent) {
				t.Fatalf("round %d: %v", round, err) // away means: provably nothing was sent
			}
			return err == nil && !r.IsError
		})
	}
	if got := strings.Join(hostile.Effects(t, effects), " "); got != "crash count crash count crash count" {
		t.Errorf("effects: %s", got)
	}
	if strings.Count(log.String(), "tool server ended") < 3 {
		t.Error("nobody is told that a server ended")
	}
}

func TestWhileAServerIsAwayItsToolsAreUnavailable(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(broken, []byte("tok-0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := stdio(t, "x", []string{"crash", "typed"})
	s.Credential = &catalogue.Credential{Source: "file", Path: broken, Env: "API_TOKEN"}
	c, _ := run(t, s)
	if err := os.Remove(broken); err != nil { // so that it cannot start again
		t.Fatal(err)
	}
	_, _ = invoke(t, tool(t, c, "x.crash"))
	wait(t, func() bool { found, _ := c.List([]string{"x.*"}); return len(found) == 0 })
	if _, missing := c.List([]string{"x.typed"}); codes(missing) != "x.typed="+string(fault.ToolUnavailable) {
		t.Errorf("missing %s", codes(missing))
	}
	typed := tool(t, c, "x.typed")
	if err := typed.Check(map[string]any{}); err == nil {
		t.Error("arguments are not checked while the server is away")
	}
	if _, err := invoke(t, typed); !errors.Is(err, call.ErrNotSent) {
		t.Errorf("a call while the server is away: %v", err)
	}
}

// A credential is in the environment of its own server, and nowhere else.
func TestCredentials(t *testing.T) {
	t.Parallel()
	const first, second = "tok-first-0123456789", "tok-second-0123456789"
	dir := t.TempDir()
	with := func(namespace, secret string, args ...string) catalogue.Server {
		path := filepath.Join(dir, namespace)
		if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := stdio(t, namespace, []string{"environment", "secret", "rpc_error"}, args...)
		s.Environment = map[string]string{"LANG": "C"}
		s.Credential = &catalogue.Credential{Source: "file", Path: path, Env: "API_TOKEN"}
		return s
	}
	c, log := run(t, with("a", first), with("b", second), with("broken", first, "-mode", hostile.ModeExit))
	for _, namespace := range []string{"a", "b"} {
		r, err := invoke(t, tool(t, c, namespace+".environment"))
		if err != nil || string(r.JSON) != `{"content":[{"type":"text","text":"LANG=C\nAPI_TOKEN=[redacted]"}]}` {
			t.Errorf("%s: %s %v", namespace, r.JSON, err)
		}
		for _, name := range []string{"secret", "rpc_error"} {
			r, err := invoke(t, tool(t, c, namespace+"."+name))
			if err != nil || !strings.Contains(string(r.JSON), "[redacted]") || strings.Contains(string(r.JSON), "0123456789") {
				t.Errorf("%s: %s: %s %v", namespace, name, r.JSON, err)
			}
		}
	}
	wait(t, func() bool { return strings.Contains(log.String(), "cannot start with the token [redacted]") })
	if strings.Contains(log.String(), "0123456789") {
		t.Errorf("a credential is in the log: %s", log)
	}
}

func TestOnlyTheOperatorSaysWhatMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := stdio(t, "x", []string{"echo", "count", "fail"})
	s.ToolOptions = map[string]catalogue.ToolOptions{"echo": {ReadOnly: true}, "count": {Idempotent: true}}
	s.Timeout = "7s"
	all := stdio(t, "y", []string{"echo"})
	all.ReadOnly = true
	c, _ := run(t, s, all)
	for id, want := range map[string]bool{"x.echo": true, "x.count": true, "x.fail": false, "y.echo": true} {
		if got := tool(t, c, id).Repeatable(); got != want {
			t.Errorf("%s: repeatable %v", id, got)
		}
	}
	if got := tool(t, c, "x.echo").Timeout(); got != 7*time.Second {
		t.Errorf("timeout %v", got)
	}
	if got := tool(t, c, "y.echo").Timeout(); got != 30*time.Second {
		t.Errorf("timeout %v", got)
	}
}

// Another server changes no name that a model was given before.
func TestOfferedNamesDoNotDependOnOthers(t *testing.T) {
	t.Parallel()
	names := func(servers ...catalogue.Server) map[string]string {
		c, _ := run(t, servers...)
		found, _ := c.List([]string{"a.*", "a_b.*"})
		out := map[string]string{}
		for _, d := range found {
			out[d.ID] = d.OfferedName
		}
		return out
	}
	a, b := stdio(t, "a", []string{"echo", "fail"}), stdio(t, "a_b", []string{"echo"})
	before, after := names(a), names(b, a)
	if len(before) != 2 || len(after) != 3 {
		t.Fatalf("%v %v", before, after)
	}
	for id, name := range before {
		if after[id] != name {
			t.Errorf("%s was offered as %s and is now %s", id, name, after[id])
		}
	}
	var all []string
	for _, name := range after {
		all = append(all, name)
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 3 {
		t.Errorf("names do not tell tools apart: %v", after)
	}
}
