// Package aguidriver runs the real AG-UI client, @ag-ui/client from npm, against
// an endpoint: the script agui/driver.mjs of this module.
package aguidriver

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// timeout bounds one process of the client.
const timeout = 2 * time.Minute

// Conversation of one client with one endpoint.
type Conversation struct {
	URL string `json:"url"`
	// HeaderFile holds one header line, such as that of a bearer token; it may be
	// empty.
	HeaderFile string          `json:"header_file,omitempty"`
	ThreadID   string          `json:"thread_id"`
	State      json.RawMessage `json:"state,omitempty"`
	Turns      []Turn          `json:"turns"`
}

// Turn is one message of the user, or an answer.
type Turn struct {
	// RunID is made up by the client if it is empty.
	RunID   string `json:"run_id,omitempty"`
	Message string `json:"message,omitempty"`
	// Answer resolves every interrupt that the turn before ended with; such a turn has
	// no message.
	Answer json.RawMessage `json:"answer,omitempty"`
	// AbortAfter is the type of an event after which the client goes away. It then
	// makes up a RUN_ERROR with the code "abort" for itself.
	AbortAfter string `json:"abort_after,omitempty"`
}

// Seen is what the client saw of a turn.
type Seen struct {
	// Events are those that the client passed on, in their order.
	Events []Event `json:"events"`
	// Callbacks are the names of the client's callbacks, in their order.
	Callbacks []string `json:"callbacks"`
	// Error says why the client gave the run up; a run.error is none.
	Error string `json:"error"`
	// Aborted is true when the client went away as it was told to.
	Aborted bool `json:"aborted"`
	// Warnings are what the client complained of.
	Warnings []string `json:"warnings"`
	// Messages and State are what the client has after the turn.
	Messages []Message       `json:"messages"`
	State    json.RawMessage `json:"state"`
	// Snapshot is nil unless there was a MESSAGES_SNAPSHOT.
	Snapshot *Snapshot `json:"snapshot"`
}

// Snapshot has a client's messages before and after a MESSAGES_SNAPSHOT.
type Snapshot struct {
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// Event is an AG-UI event.
type Event map[string]any

// Type of the event.
func (e Event) Type() string { return e.String("type") }

// String is a member of the event that is a string, or "".
func (e Event) String(name string) string {
	s, _ := e[name].(string)
	return s
}

// Outcome is the type of the outcome of RUN_FINISHED, or "".
func (e Event) Outcome() string {
	o, _ := e["outcome"].(map[string]any)
	s, _ := o["type"].(string)
	return s
}

// Message is one that the client has.
type Message struct {
	ID         string `json:"id"`
	Role       string `json:"role"`
	Content    string `json:"content"`
	ToolCallID string `json:"toolCallId"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"toolCalls"`
}

// Types are the types of the events.
func (s Seen) Types() []string {
	out := make([]string, len(s.Events))
	for i, e := range s.Events {
		out[i] = e.Type()
	}
	return out
}

// Text is what the events say to the user.
func (s Seen) Text() string {
	var b strings.Builder
	for _, e := range s.Events {
		if e.Type() == "TEXT_MESSAGE_CONTENT" {
			b.WriteString(e.String("delta"))
		}
	}
	return b.String()
}

// Terminal is the last event, if it ends a run.
func (s Seen) Terminal() Event {
	if len(s.Events) == 0 {
		return nil
	}
	last := s.Events[len(s.Events)-1]
	if last.Type() != "RUN_FINISHED" && last.Type() != "RUN_ERROR" {
		return nil
	}
	return last
}

// Run lets the real client have a conversation, and gives what it saw, turn by
// turn. Where Node or the npm packages are missing the test is skipped and says
// so; with CI=true that is a failure.
func Run(t *testing.T, c Conversation) []Seen {
	t.Helper()
	return RunAll(t, c)[0]
}

// RunAll is Run for conversations that have nothing to do with one another, one
// after the other in one process.
func RunAll(t *testing.T, conversations ...Conversation) [][]Seen {
	t.Helper()
	script := filepath.Join(folder(t), "driver.mjs")
	node := require(t, filepath.Dir(script))
	input, err := json.Marshal(conversations)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, script)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("the AG-UI client broke down: %v\n%s", err, stderr.Bytes())
	}
	var out [][]Seen
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil || len(out) != len(conversations) {
		t.Fatalf("the AG-UI driver answered %q (%v)\n%s", stdout.Bytes(), err, stderr.Bytes())
	}
	for i, c := range conversations {
		if len(out[i]) != len(c.Turns) {
			t.Fatalf("the AG-UI driver played %d of %d turns", len(out[i]), len(c.Turns))
		}
	}
	return out
}

// require gives the path of node, or ends the test.
func require(t *testing.T, folder string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "node_modules", "@ag-ui", "client", "package.json"))
	}
	if err == nil {
		return node
	}
	missing := "THE REAL AG-UI CLIENT WAS NOT RUN: it needs Node 20 and `make node-modules` (" + err.Error() + ")"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Log(missing)
	t.Skip(missing)
	return ""
}

// folder is agui of the module tests, wherever in it the test is run.
func folder(t *testing.T) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; at != filepath.Dir(at); at = filepath.Dir(at) {
		found := filepath.Join(at, "agui")
		if _, err := os.Stat(filepath.Join(found, "driver.mjs")); err == nil {
			return found
		}
	}
	t.Fatal("agui/driver.mjs is not there: the test has to be run in the module tests")
	return ""
}
