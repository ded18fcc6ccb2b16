package mcpstdio_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/services/toolbroker/internal/hostile"
	"cofferdam.dev/services/toolbroker/internal/mcpcall"
	"cofferdam.dev/services/toolbroker/internal/mcpstdio"
)

func start(t *testing.T, args ...string) *mcpstdio.Server {
	t.Helper()
	s, err := mcpstdio.Start(t.Context(), mcpstdio.Config{
		Command: hostile.Command(t, args...), Env: []string{"API_TOKEN=tok-0123456789"}, ConnectTimeout: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

var never time.Time

func TestAnswersComeAsTheyAre(t *testing.T) {
	t.Parallel()
	s := start(t)
	for tool, want := range map[string]string{
		"echo":      `{"content":[{"type":"text","text":"{\"a\":12345678901234567890}"}]}`,
		"exotic":    `12345678901234567890,"ratio":1.10`,
		"surrogate": `a\ud800b\udc00c`,
		"bytes":     "a\xffb\xed\xa0\x80c",
		"ask":       `"resultType":"input_required"`,
		"fail":      `"isError":true`,
	} {
		a, err := s.Call(within(t, time.Minute), tool, json.RawMessage(`{"a":12345678901234567890}`), never)
		if err != nil || a.Error != nil || !strings.Contains(string(a.Result), want) {
			t.Errorf("%s: %q %v %v, want %q in it", tool, a.Result, a.Error, err, want)
		}
	}
	a, err := s.Call(within(t, time.Minute), "huge", json.RawMessage(`{}`), never)
	if err != nil || len(a.Result) < hostile.HugeSize {
		t.Errorf("huge: %d bytes, %v", len(a.Result), err)
	}
}

func TestAnErrorOfTheServerIsAnAnswer(t *testing.T) {
	t.Parallel()
	s := start(t)
	a, err := s.Call(within(t, time.Minute), "rpc_error", json.RawMessage(`{}`), never)
	if err != nil || a.Error == nil || a.Error.Code != -32602 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestAServerGetsNothingOfItsParent(t *testing.T) {
	t.Setenv("PARENT_SECRET", "1")
	s := start(t)
	a, err := s.Call(within(t, time.Minute), "environment", json.RawMessage(`{}`), never)
	if err != nil || !strings.Contains(string(a.Result), `"text":"API_TOKEN=tok-0123456789"`) {
		t.Errorf("environment: %s, %v", a.Result, err)
	}
	a, err = s.Call(within(t, time.Minute), "descriptors", json.RawMessage(`{}`), never)
	if err != nil || strings.Count(string(a.Result), "=") != 3 {
		t.Errorf("descriptors: %s, %v", a.Result, err)
	}
}

// A blocked call ends with its context, also where the server does not even read
// what is sent to it (mcp-go 779); the server is told.
func TestABlockedCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	effects := filepath.Join(t.TempDir(), "effects")
	s := start(t, "-effects", effects)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Call(ctx, "hang", json.RawMessage(`{}`), never)
		done <- err
	}()
	wait(t, func() bool { return len(hostile.Effects(t, effects)) == 1 })
	cancel()
	if err := <-done; !errors.Is(err, mcpcall.ErrNoAnswer) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	wait(t, func() bool { return strings.Join(hostile.Effects(t, effects), " ") == "hang cancelled" })
	if a, err := s.Call(within(t, time.Minute), "echo", json.RawMessage(`{}`), never); err != nil {
		t.Errorf("the server is of no use any more: %v %v", a, err)
	}
}

func TestADeafServerHoldsNobody(t *testing.T) {
	t.Parallel()
	s := start(t, "-mode", hostile.ModeDeaf)
	if _, err := s.Tools(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	big := json.RawMessage(`{"a":"` + strings.Repeat("x", 250_000) + `"}`)
	err := mcpcall.ErrNotSent
	for d := 200 * time.Millisecond; errors.Is(err, mcpcall.ErrNotSent) && d < time.Minute; d *= 2 {
		_, err = s.Call(within(t, d), "echo", big, never) // a slow machine may not send it in so short a time
	}
	if !errors.Is(err, mcpcall.ErrNoAnswer) {
		t.Error(err)
	}
	select { // it is ended, because half a request stands in its input
	case <-s.Done():
	case <-time.After(time.Minute):
		t.Error("a server that does not read lives on")
	}
}

func TestNothingIsSentTooLateOrAfterTheEnd(t *testing.T) {
	t.Parallel()
	effects := filepath.Join(t.TempDir(), "effects")
	s := start(t, "-effects", effects)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"window is over": func() error {
			_, err := s.Call(t.Context(), "count", json.RawMessage(`{}`), time.Now().Add(-time.Nanosecond))
			return err
		},
		"context has ended": func() error {
			_, err := s.Call(ended, "count", json.RawMessage(`{}`), never)
			return err
		},
	} {
		if err := call(); !errors.Is(err, mcpcall.ErrNotSent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Call(within(t, time.Minute), "count", json.RawMessage(`{}`), time.Now().Add(time.Minute)); err != nil {
		t.Errorf("a refused call broke the connection: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Call(t.Context(), "count", json.RawMessage(`{}`), never); !errors.Is(err, mcpcall.ErrNotSent) {
		t.Errorf("after Close: %v", err)
	}
	if got := strings.Count(strings.Join(hostile.Effects(t, effects), " "), "count"); got != 1 {
		t.Errorf("%d effects", got)
	}
}

func TestAServerThatDiesLeavesItsCallsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"crash", "crash_early", "garbage"} {
		s := start(t)
		_, err := s.Call(within(t, time.Minute), tool, json.RawMessage(`{}`), never)
		if !errors.Is(err, mcpcall.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", tool, err)
		}
		select {
		case <-s.Done():
		case <-time.After(time.Minute):
			t.Errorf("%s: nobody is told that the server is gone", tool)
		}
		if _, err := s.Call(within(t, time.Minute), "count", json.RawMessage(`{}`), never); err == nil {
			t.Errorf("%s: a server that is gone answered", tool)
		}
	}
}

func TestAServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command []string
		timeout time.Duration
		want    string
	}{
		"ends at once":   {hostile.Command(t, "-mode", hostile.ModeExit), 20 * time.Second, "cannot start with the token tok-0123456789"},
		"says nothing":   {hostile.Command(t, "-mode", hostile.ModeSilent), 100 * time.Millisecond, "deadline"},
		"is not there":   {[]string{"/nonexistent/server"}, time.Second, "no such file"},
		"speaks no JSON": {[]string{"/bin/echo", "hello"}, 20 * time.Second, "negotiate"},
		"no command":     {nil, time.Second, "no command"},
	} {
		s, err := mcpstdio.Start(t.Context(), mcpstdio.Config{Command: c.command, ConnectTimeout: c.timeout, Env: []string{"API_TOKEN=tok-0123456789"}})
		if err == nil {
			t.Errorf("%s: it started: %v", name, s.Close())
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
}

// A server that ignores the end of its input and SIGTERM ends all the same, and
// so does a call that hangs in it.
func TestEndsByForce(t *testing.T) {
	t.Parallel()
	effects := filepath.Join(t.TempDir(), "effects")
	s := start(t, "-mode", hostile.ModeStubborn, "-effects", effects)
	hanging := make(chan error, 1)
	go func() {
		_, err := s.Call(t.Context(), "hang", json.RawMessage(`{}`), never)
		hanging <- err
	}()
	wait(t, func() bool { return len(hostile.Effects(t, effects)) == 1 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-hanging; !errors.Is(err, mcpcall.ErrNoAnswer) {
		t.Errorf("a call in a server that was killed: %v", err)
	}
}

func stubborn(t *testing.T) []string {
	t.Helper()
	return hostile.Command(t, "-mode", hostile.ModeStubborn)
}

func TestAStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	s, err := mcpstdio.Start(ctx, mcpstdio.Config{Command: hostile.Command(t, "-mode", hostile.ModeSilent), ConnectTimeout: time.Minute})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v %v", s, err)
	}
}

func TestListsOfToolsAreBounded(t *testing.T) {
	t.Parallel()
	if tools, err := start(t, "-mode", hostile.ModeEndless).Tools(within(t, time.Minute)); err == nil {
		t.Errorf("%d tools of an endless list", len(tools.Tools))
	}
	tools, err := start(t, "-mode", hostile.ModeMalformed).Tools(within(t, time.Minute))
	if err != nil || len(tools.Tools) < 30 {
		t.Errorf("malformed tools spoil the others: %d, %v", len(tools.Tools), err)
	}
}

func TestChatterIsNotCollected(t *testing.T) {
	t.Parallel()
	s := start(t, "-mode", hostile.ModeChatter)
	if _, err := s.Tools(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := s.Call(within(t, time.Minute), "echo", json.RawMessage(`{}`), never); err != nil {
			t.Fatal(err)
		}
	}
}

// wait until a condition holds; what is waited for happens in another process.
func wait(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		select {
		case <-tick.C:
			if holds() {
				return
			}
		case <-deadline:
			t.Fatal("it did not come to pass within a minute")
		}
	}
}
