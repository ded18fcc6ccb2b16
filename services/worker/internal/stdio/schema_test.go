package stdio

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/worker/internal/harness"
)

const (
	schemas    = "../../../../docs/schemas/stdio-v1"
	schemaBase = "https://cofferdam.dev/schemas/stdio-v1/"
)

// published compiles the schemas as they ship.
func published(t *testing.T) *jsonschema.Compiler {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	files, err := filepath.Glob(filepath.Join(schemas, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no schemas: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		must(t, err)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		must(t, err)
		must(t, c.AddResource(schemaBase+filepath.Base(name), doc))
	}
	return c
}

// recorder keeps the lines of several programs.
type recorder struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Split(strings.TrimSuffix(r.text.String(), "\n"), "\n")
}

// Every line that was really said fits its schema, and every schema is that of a
// line that was said.
func TestLinesFitTheirSchemas(t *testing.T) {
	t.Parallel()
	requests, messages := recordAll(t)
	c := published(t)
	seen := map[string]bool{"common": true, "request": true, "message": true}
	check := func(whole string, lines []string) {
		schema, err := c.Compile(schemaBase + whole + ".json")
		must(t, err)
		for _, l := range lines {
			var head struct {
				Type  string `json:"type"`
				Event any    `json:"event"`
			}
			must(t, json.Unmarshal([]byte(l), &head))
			seen[head.Type] = true
			if head.Event != nil {
				seen["draft"] = true
			}
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(l))
			must(t, err)
			if err := schema.Validate(doc); err != nil {
				t.Errorf("%.300s does not fit %s: %v", l, whole, err)
			}
		}
	}
	check("request", requests)
	check("message", append(messages, lines()...))
	files, err := filepath.Glob(filepath.Join(schemas, "*.json"))
	must(t, err)
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".json"); !seen[name] {
			t.Errorf("no line of the type %s was recorded", name)
		}
	}
}

// recordAll lets programs say all that can be said.
func recordAll(t *testing.T) (requests, messages []string) {
	t.Helper()
	in, out := &recorder{}, &recorder{}
	turn := func(s *stand) {
		s.world.Record(in, out)
		r, err := s.Start(t.Context(), envelope("run-1", time.Minute), harness.Turn{
			RunID: "run-1", ConversationID: conversation, Message: "go", Deadline: time.Now().Add(time.Minute), ClientContext: []byte(`{"page":"1"}`),
			Files: []harness.File{{DisplayName: "a", MIMEType: "text/plain"}}, Uploads: []harness.Upload{{Handle: "h", MaxBytes: 100}},
		}, nil)
		must(t, err)
		s.read(t, r)
	}
	for _, name := range []string{"good", "calls", "unknown tool", "memory", "files", "large state", "own tool", "fails", "logs"} {
		s := newStand(t, name, change{construction: func(c *harness.Construction) {
			c.UserContext = []byte(`{"locale":"de"}`)
		}, manifests: manifests()})
		turn(s)
		if name == "good" {
			s.run(t, "run-2", "again") // with a state
		}
	}
	for _, name := range []string{"asks approval", "asks a form"} {
		for _, dismissed := range []bool{false, true} {
			s := newStand(t, name, change{})
			s.world.Record(in, out)
			first := &collector{}
			_, err := s.initialized(t).Stream(t.Context(), harness.Turn{RunID: "run-1", ConversationID: conversation, Message: "go", Deadline: time.Now().Add(time.Minute)}, s.facades(), first)
			must(t, err)
			asked, ok := first.drafts[len(first.drafts)-1].Data.(event.InterruptRequested)
			if !ok {
				t.Fatalf("events %s", first.types())
			}
			d := harness.Decision{Dismissed: dismissed}
			switch {
			case dismissed:
			case name == "asks a form":
				d.Form = []byte(`{"region":"eu"}`)
			default:
				d.Tools = []harness.ToolDecision{
					{ToolCallID: "c1", Decision: event.DecisionEdit, Arguments: []byte(`{"n":7}`)}, {ToolCallID: "c2", Decision: event.DecisionReject},
				}
			}
			_, err = s.resume(t, asked, d)
			must(t, err)
		}
	}
	cancelled := newStand(t, "ends on cancel", change{})
	cancelled.world.Record(in, out)
	r := cancelled.start(t, "run-1", "go", time.Minute)
	for {
		batch, err := r.Next(t.Context())
		must(t, err)
		if batch[len(batch)-1].Type() == event.TypeTextStarted {
			break
		}
	}
	cancelled.Cancel(t.Context(), "run-1", event.CancelledByClient)
	cancelled.read1(t, r)
	return in.lines(), out.lines()
}

// What the schemas refuse, the adapter refuses too: a program that was written by
// them alone finds no other rules.
func TestSchemasRefuse(t *testing.T) {
	t.Parallel()
	c := published(t)
	schema, err := c.Compile(schemaBase + "message.json")
	must(t, err)
	for _, l := range []string{
		`{"type":"ready","protocol":1,"extra":1}`, `{"type":"commit"}`, `{"type":"commit","state":"not base64!","stop_reason":"stop"}`,
		`{"type":"event","event":{"type":"run.finished","data":{"outcome":"success","stop_reason":"stop"}}}`,
		`{"type":"event","event":{"type":"text.delta","sequence":1,"data":{"message_id":"m","delta":"x"}}}`,
		`{"type":"interrupt"}`, `{"type":"error","code":"stale_lease"}`, `{"type":"tool_call","tool_call_id":"a b","tool_id":"fs.read","arguments":{}}`,
	} {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(l))
		must(t, err)
		if schema.Validate(doc) == nil {
			t.Errorf("the schema takes %s", l)
		}
	}
}

// What the page shows is true: its preset is one, and its lines fit the schemas.
func TestThePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/adapters.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "```json\n")
	preset, _, _ := strings.Cut(rest, "```")
	if _, err := ParsePreset([]byte(preset)); err != nil {
		t.Error(err)
	}
	schema, err := published(t).Compile(schemaBase + "message.json")
	must(t, err)
	shown := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "program → worker"))
		if !strings.HasPrefix(line, `{"type":`) || strings.Contains(line, ":…") {
			continue
		}
		shown++
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		must(t, err)
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if shown < 6 {
		t.Errorf("only %d lines were found", shown)
	}
	// Every line that there is, is explained.
	for _, name := range []string{
		"initialize", "turn", "resume", "tool_result", "memory_result", "upload_result", "cancel",
		"ready", "event", "tool_call", "memory_get", "memory_put", "upload", "state", "log", "commit", "interrupt", "error",
	} {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("%s is not on the page", name)
		}
	}
	for _, code := range mayFail() {
		if !strings.Contains(string(text), "`"+string(code)+"`") {
			t.Errorf("the code %s is not on the page", code)
		}
	}
}
