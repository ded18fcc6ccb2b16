package tests_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/aguidriver"
)

// encoded are the goldens of the control plane's AG-UI encoder.
const encoded = "../services/controlplane/internal/agui/testdata"

// endpoint answers the runs of a client with goldens: the path names them, one
// for each turn, with commas between them.
type endpoint struct{ t *testing.T }

func (e endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var input struct {
		Messages []struct {
			Role string `json:"role"`
		} `json:"messages"`
		Resume []json.RawMessage `json:"resume"`
	}
	if err := json.NewDecoder(r.Body).Decode(&input); err != nil {
		e.t.Errorf("the client sent no input: %v", err)
	}
	turn := -1
	for _, m := range input.Messages {
		if m.Role == "user" {
			turn++
		}
	}
	if len(input.Resume) > 0 { // no message, and it is a turn all the same
		turn++
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i, f := range frames(e.t, strings.Split(r.URL.Path[1:], ",")[turn]) {
		_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i, f)
	}
}

// frames are those of a golden; what is named behind a minus is left out.
func frames(t *testing.T, name string) [][]byte {
	t.Helper()
	name, less, _ := strings.Cut(name, "-without-")
	raw, err := os.ReadFile(filepath.Join(encoded, "streams", name+".jsonl"))
	if err != nil {
		t.Error(err)
		return nil
	}
	lines := bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
	return slices.DeleteFunc(lines, func(l []byte) bool { return less != "" && bytes.Contains(l, []byte(`"type":"`+less+`"`)) })
}

// read lets a fresh client read each of the goldens, or lists of them.
func read(t *testing.T, names ...string) map[string][]aguidriver.Seen {
	t.Helper()
	server := httptest.NewServer(endpoint{t})
	t.Cleanup(server.Close)
	conversations := make([]aguidriver.Conversation, len(names))
	for i, name := range names {
		c := aguidriver.Conversation{URL: server.URL + "/" + name, ThreadID: "thread-1", State: json.RawMessage(`{"page":3}`)}
		for one := range strings.SplitSeq(name, ",") {
			turn := aguidriver.Turn{RunID: "client-run-1", Message: "hi"}
			if one == "resumed" && len(c.Turns) > 0 {
				turn.Message, turn.Answer = "", json.RawMessage(`{"decision":"approve"}`)
			}
			c.Turns = append(c.Turns, turn)
		}
		conversations[i] = c
	}
	seen := aguidriver.RunAll(t, conversations...)
	out := make(map[string][]aguidriver.Seen)
	for i, name := range names {
		out[name] = seen[i]
	}
	return out
}

// The real client reads every stream that the encoder's goldens hold, without a
// complaint and to its terminal.
func TestTheRealClientReadsEveryGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(encoded, "streams", "*.jsonl"))
	if err != nil || len(files) < 10 {
		t.Fatalf("goldens %v (%v)", files, err)
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(filepath.Base(f), ".jsonl")
	}
	for name, turns := range read(t, names...) {
		seen := turns[0]
		if seen.Error != "" || len(seen.Warnings) > 0 {
			t.Errorf("%s: the client gave up or complained: %q, %q", name, seen.Error, seen.Warnings)
			continue
		}
		var sent []aguidriver.Event
		for _, f := range frames(t, name) {
			var e aguidriver.Event
			if err := json.Unmarshal(f, &e); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, e)
		}
		if !reflect.DeepEqual(seen.Events, sent) {
			t.Errorf("%s: the client passed on\n%v\nof\n%v", name, seen.Events, sent)
		}
		if seen.Terminal() == nil {
			t.Errorf("%s: the client saw no terminal", name)
		}
		if string(seen.State) != `{"page":3}` {
			t.Errorf("%s: the client's state became %s", name, seen.State)
		}
	}
}

// What the client has after each kind of run.
func TestWhatTheRealClientHasInTheEnd(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		messages []string
		ends     string
	}{
		"text":      {[]string{"assistant: Grüße, \"Welt\" 😀\n<b>&\u2028 .\n"}, "RUN_FINISHED success"},
		"reasoning": {[]string{"reasoning: hm", "assistant: Yes."}, "RUN_FINISHED success"},
		"tool": {[]string{
			`assistant: I look. fs.read_text_file({"path":"a.txt"})`, "tool: one line", "assistant: It has one line.",
		}, "RUN_FINISHED success"},
		"tools-at-once": {[]string{
			`assistant: Both. Now. fs.read_text_file({"path":"a.txt"}) fs.read_text_file({"path":"b.txt"})`,
			`tool: {"lines":[1,null]}`, "tool: ", "assistant: Done.",
		}, "RUN_FINISHED success"},
		"tool-error": {[]string{
			`assistant:  fs.read_text_file({"path":"a"})`, "tool: Error tool_unavailable: The tool's server does not answer. Try again.",
			`assistant:  fs.read_text_file({"path":"b"})`, "tool: Error tool_denied: This tool may not be called.", "assistant: It failed.",
		}, "RUN_FINISHED success"},
		"cancelled": {[]string{
			"assistant: I am go", `assistant:  fs.read_text_file({"pa":null})`,
			"tool: Error cancelled: The run was cancelled before this tool call ended.", "reasoning: ",
		}, "RUN_FINISHED cancelled"},
		"error": {[]string{
			"assistant: I am go", `assistant:  fs.read_text_file({"path":"a.txt"})`,
			"tool: Error sandbox_evicted: The run failed before this tool call ended.",
		}, "RUN_ERROR "},
		"interrupt-form": {[]string{"assistant: One question."}, "RUN_FINISHED interrupt"},
		"interrupt-approval": {[]string{
			"reasoning: ", `assistant:  fs.read_text_file({"path":"c.txt"})`, "tool: c",
			`assistant:  fs.read_text_file({})`, "tool: Error tool_unavailable: The tool's server does not answer. Try again.",
			`assistant: May I? fs.read_text_file({"path":"a.txt"}) fs.read_text_file({"path":"a.txt"})`,
		}, "RUN_FINISHED interrupt"},
	}
	for name, turns := range read(t, slices.Collect(maps.Keys(cases))...) {
		got, want := told(turns[0].Messages), append([]string{"user: hi"}, cases[name].messages...)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the client has\n%q\nand not\n%q", name, got, want)
		}
		if last := turns[0].Terminal(); last.Type()+" "+last.Outcome() != cases[name].ends {
			t.Errorf("%s: the run ended with %v", name, last)
		}
	}
}

func told(messages []aguidriver.Message) (out []string) {
	for _, m := range messages {
		s := m.Role + ": " + m.Content
		for _, c := range m.ToolCalls {
			s += " " + c.Function.Name + "(" + c.Function.Arguments + ")"
		}
		out = append(out, s)
	}
	return out
}

// A snapshot before an interrupt restates what the client has, to the letter.
func TestASnapshotChangesNothingInTheRealClient(t *testing.T) {
	t.Parallel()
	for name, turns := range read(t, "interrupt-approval", "interrupt-form") {
		s := turns[0].Snapshot
		if s == nil {
			t.Fatalf("%s: there was no snapshot", name)
		}
		var before, after []any
		if err := errors.Join(json.Unmarshal(s.Before, &before), json.Unmarshal(s.After, &after)); err != nil {
			t.Fatal(err)
		}
		if len(after) < 2 || !reflect.DeepEqual(before, after) {
			t.Errorf("%s: a snapshot made\n%s\nof\n%s", name, s.After, s.Before)
		}
	}
}

// A harness numbers its messages anew in every run. In the client they stay two.
func TestTheSecondTurnDoesNotWriteIntoTheFirst(t *testing.T) {
	t.Parallel()
	want := []string{
		"user: hi", "assistant: First.", `assistant:  fs.read_text_file({"path":"a.txt"})`, "tool: a",
		"user: hi", "assistant: Second.", `assistant:  fs.read_text_file({"path":"b.txt"})`, "tool: b",
	}
	if got := told(read(t, "turn-1,turn-2")["turn-1,turn-2"][1].Messages); !slices.Equal(got, want) {
		t.Errorf("the client has\n%q\nand not\n%q", got, want)
	}
}

// The results of a resumed run stand behind the calls that the run before it opened.
func TestAResumedRunAnswersTheCallsThatTheClientHas(t *testing.T) {
	t.Parallel()
	turns := read(t, "interrupt-approval,resumed")["interrupt-approval,resumed"]
	if turns[1].Error != "" || len(turns[1].Warnings) > 0 {
		t.Errorf("the client gave up or complained: %q, %q", turns[1].Error, turns[1].Warnings)
	}
	asked, got := told(turns[0].Messages), told(turns[1].Messages)
	want := append(slices.Clone(asked),
		"tool: done", "tool: Error tool_denied: A person rejected this call.",
		`assistant:  fs.read_text_file({"path":"b.txt"})`, "tool: b", "assistant: Done.")
	if !slices.Equal(got, want) {
		t.Errorf("the client has\n%q\nand not\n%q", got, want)
	}
}

// The driver has teeth: it says when the client refuses a stream, and when there
// is no terminal, which the client takes for success.
func TestTheDriverNoticesBadStreams(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"text-without-TEXT_MESSAGE_START": "No active text message",
		"text-without-TEXT_MESSAGE_END":   "text messages are still active",
		"text-without-RUN_FINISHED":       "",
	}
	for name, turns := range read(t, slices.Collect(maps.Keys(bad))...) {
		want := bad[name]
		if !strings.Contains(turns[0].Error, want) || (want == "") != (turns[0].Error == "") {
			t.Errorf("%s: %q, not %q", name, turns[0].Error, want)
		}
		if turns[0].Terminal() != nil {
			t.Errorf("%s has a terminal", name)
		}
	}
}

// What the client sends is what the control plane's parser is tested with.
func TestTheRealClientSendsTheGoldenInput(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(filepath.Join(encoded, "httpagent.json"))
	if err != nil {
		t.Fatal(err)
	}
	bodies := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- body
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	seen := aguidriver.Run(t, aguidriver.Conversation{
		URL: server.URL, ThreadID: "thread-1", Turns: []aguidriver.Turn{{RunID: "client-run-1", Message: "hi"}},
	})
	if got := <-bodies; !bytes.Equal(got, bytes.TrimSpace(want)) {
		t.Errorf("the client sends\n%s\nand not\n%s", got, want)
	}
	if !strings.Contains(seen[0].Error, "418") {
		t.Errorf("the client did not notice the answer: %q", seen[0].Error)
	}
}

// A client that is told to go away does so while the run goes on.
func TestTheDriverGoesAway(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, f := range frames(t, "text")[:3] {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", f)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
		close(gone)
	}))
	t.Cleanup(server.Close)
	seen := aguidriver.Run(t, aguidriver.Conversation{
		URL: server.URL, ThreadID: "thread-1", Turns: []aguidriver.Turn{{Message: "hi", AbortAfter: "TEXT_MESSAGE_CONTENT"}},
	})[0]
	if last := seen.Terminal(); !seen.Aborted || last.String("code") != "abort" || seen.Error != "" {
		t.Errorf("the client saw %+v", seen)
	}
	<-gone
}
