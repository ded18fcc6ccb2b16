package acp_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/acp"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

func TestMain(m *testing.M) {
	if os.Getenv(envAgent) != "" {
		playAgent()
		return
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stand is the adapter with an agent, a model on a real wire, and facades that do
// what real ones promise, in memory.
type stand struct {
	world   *world
	model   *model
	tools   *tools
	thread  *thread
	files   files
	log     *bytes.Buffer
	preset  acp.Preset
	build   harness.Construction
	config  acp.Config
	runtime harness.Runtime
}

func testPreset(t *testing.T) acp.Preset {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	return acp.Preset{
		Name: "fake", MadeFor: []acp.Package{{NPM: "none", Version: "1"}}, Command: self,
		Env:       map[string]string{envAgent: "normal", "MODEL_URL": "${MODEL_BASE_URL_V1}", "MODEL_KEY": "${MODEL_KEY}"},
		HomeFiles: map[string]json.RawMessage{"config.json": json.RawMessage(`{"model":"${MODEL}"}`), "note": json.RawMessage(`"mcp ${MCP_URL}"`)},
		ModelWire: harness.WireOpenAIChat, MCP: acp.MCPHTTP, State: hosted.Paths{Include: []string{"sessions"}, Exclude: []string{"sessions/*.tmp"}},
		Permission: acp.PermissionAsk, StartupMS: 60_000, GraceMS: 1000, SlashPrefix: "Message:\n", Images: true, Embedded: true,
		DropText: []string{"Model metadata"},
	}
}

func newStand(t *testing.T, change ...func(*stand)) *stand {
	t.Helper()
	s := &stand{
		world: newWorld(t), model: newModel(t), tools: &tools{}, thread: &thread{}, files: files{}, log: &bytes.Buffer{}, preset: testPreset(t),
		build: harness.Construction{
			AgentID: "agent", Prompt: "be brief", Model: harness.ModelConfig{Alias: "main", Wire: harness.WireOpenAIChat, Images: true},
			Tools: []harness.Tool{
				{ID: "fs.read", OfferedName: "fs_read", Description: "Reads.", InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)},
				{ID: "fs.write", OfferedName: "fs_write", InputSchema: json.RawMessage(`{"properties":{"path":{"type":"string"},"n":{"type":"number"}}}`), ApprovalRequired: true},
			},
			Interrupts: harness.InterruptPolicy{ToolApproval: true},
			Limits:     harness.Limits{ModelCalls: 8, ToolCalls: 8, StateBytes: 1 << 20},
		},
	}
	for _, f := range change {
		f(s)
	}
	must(t, s.preset.Validate())
	s.restart(t)
	return s
}

// restart puts a new runtime into the stand's world.
func (s *stand) restart(t *testing.T) {
	t.Helper()
	s.config.World, s.config.Preset = s.world, s.preset
	s.config.Logger = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.config.Siblings, s.config.Quiet = 100*time.Millisecond, 100*time.Millisecond
	rt, err := acp.New(s.config).Initialize(t.Context(), s.build)
	must(t, err)
	s.runtime = rt
	t.Cleanup(func() { must(t, rt.Cleanup(context.WithoutCancel(t.Context()))) })
}

// newWorker is another worker in another world, with the same thread.
func (s *stand) newWorker(t *testing.T) *stand {
	t.Helper()
	n := *s
	n.world = newWorld(t)
	n.restart(t)
	return &n
}

func (s *stand) facades(r *recorder) harness.Facades {
	return harness.Facades{
		Model: harness.Model{HTTP: s.model.client, RootURL: s.model.server.URL + "/", BaseURL: s.model.server.URL + "/v1/", Alias: "main"},
		Tools: s.tools, Thread: runThread{s.thread, r}, Files: s.files,
	}
}

// outcome is how a run went.
type outcome struct {
	*recorder
	result harness.Result
	err    error
}

func (s *stand) run(t *testing.T, runID, message string, in ...harness.File) outcome {
	t.Helper()
	return s.runWith(t, t.Context(), runID, message, in...)
}

func (s *stand) runWith(t *testing.T, ctx context.Context, runID, message string, in ...harness.File) outcome { //nolint:revive // t first, as elsewhere
	t.Helper()
	r := newRecorder(runID)
	res, err := s.runtime.Stream(ctx, harness.Turn{RunID: runID, ConversationID: conversation, Message: message, Files: in}, s.facades(r), r)
	r.over(t)
	return outcome{r, res, err}
}

// resume carries out a decision about the interrupt that stands.
func (s *stand) resume(t *testing.T, runID string, before outcome, decide ...harness.ToolDecision) outcome {
	t.Helper()
	r := newRecorder(runID, before.machine.Pending()...)
	interrupt, ok := before.machine.Interrupt()
	if !ok {
		t.Fatal("there was no interrupt")
	}
	d := harness.Decision{RunID: runID, ConversationID: conversation, Interrupt: interrupt, Tools: decide, Dismissed: len(decide) == 0}
	res, err := s.runtime.Resume(t.Context(), d, s.facades(r), r)
	r.over(t)
	return outcome{r, res, err}
}

const conversation = "conversation-1"

// recorder judges what is emitted as a session does.
type recorder struct {
	mu      sync.Mutex
	machine *event.Machine
	events  []event.Event
	covered bool
	ended   bool
	late    int
	// seen is told of each event.
	seen chan event.Event
}

func newRecorder(runID string, carried ...event.Carried) *recorder {
	r := &recorder{machine: event.NewMachine(runID, conversation, event.Bounds{}, carried...), seen: make(chan event.Event, 1<<16)}
	if err := r.accept(event.RunStarted{HarnessID: acp.ID, AdapterVersion: acp.Version}); err != nil {
		panic(err)
	}
	return r
}

func (r *recorder) accept(d event.Data) error {
	e := r.machine.Stamp(event.Draft{Data: d}, time.Unix(1, 0).UTC())
	if err := r.machine.Accept(e); err != nil {
		return fault.Wrap(err, fault.Protocol, "test")
	}
	r.events = append(r.events, e)
	select {
	case r.seen <- e:
	default:
	}
	return nil
}

func (r *recorder) Emit(ctx context.Context, d event.Draft) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended || r.covered:
		r.late++
		return fault.New(fault.Protocol, "test")
	case ctx.Err() != nil:
		return fault.From(ctx.Err(), "test")
	case event.IsEmptyDelta(d.Data):
		return nil
	}
	return r.accept(d.Data)
}

// over says that the harness has stopped: nothing may come any more.
func (r *recorder) over(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.late > 0 {
			t.Errorf("%d events came after the run", r.late)
		}
	})
}

// cover is what a commit asks of the stream.
func (r *recorder) cover(end event.Data) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.accept(end); err != nil {
		return err
	}
	r.covered = true
	return nil
}

func (r *recorder) types() string {
	var out []string
	for _, e := range r.events {
		if _, ok := e.Data.(event.UsageUpdated); !ok {
			out = append(out, string(e.Type()))
		}
	}
	return strings.Join(out, " ")
}

func (r *recorder) text() string {
	out := ""
	for _, d := range of[event.TextDelta](r) {
		out += d.Delta
	}
	return out
}

// of gives the payloads of one type.
func of[D event.Data](r *recorder) []D {
	var out []D
	for _, e := range r.events {
		if d, ok := e.Data.(D); ok {
			out = append(out, d)
		}
	}
	return out
}

func (o outcome) wantFinished(t *testing.T, reason string) {
	t.Helper()
	must(t, o.err)
	if end := of[event.RunFinished](o.recorder); len(end) != 1 || o.result.StopReason != reason {
		t.Fatalf("the run ended by %q with %s", o.result.StopReason, o.types())
	}
}

func (o outcome) wantError(t *testing.T, code fault.Code) {
	t.Helper()
	if fault.CodeOf(o.err) != code {
		t.Fatalf("the run ended by %v, want %s; events %s", o.err, code, o.types())
	}
	if len(of[event.RunFinished](o.recorder)) > 0 {
		t.Error("and it was committed")
	}
}

func (o outcome) wantInterrupt(t *testing.T) event.InterruptRequested {
	t.Helper()
	must(t, o.err)
	got := of[event.InterruptRequested](o.recorder)
	if len(got) != 1 || len(of[event.RunInterrupted](o.recorder)) != 1 {
		t.Fatalf("no interrupt: %s", o.types())
	}
	return got[0]
}

// wait is for an event that fits.
func (r *recorder) wait(t *testing.T, fits func(event.Event) bool) {
	t.Helper()
	for {
		select {
		case e := <-r.seen:
			if fits(e) {
				return
			}
		case <-t.Context().Done():
			t.Fatal("it did not come")
		}
	}
}

// model is the demo model on a real wire.
type model struct {
	server *httptest.Server
	client *http.Client

	mu     sync.Mutex
	header []http.Header
	// answer takes the place of the demo model where it is set.
	answer http.HandlerFunc
}

func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{client: &http.Client{Transport: &http.Transport{}}}
	demo := demomodel.New()
	m.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.header = append(m.header, r.Header.Clone())
		answer := m.answer
		m.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		demo.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		m.client.CloseIdleConnections()
		m.server.Close()
	})
	return m
}

func (m *model) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.header)
}

// tools is a broker.
type tools struct {
	// answer is what a tool gives; nil says "done".
	answer func(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error)

	mu    sync.Mutex
	calls []harness.ToolCall
}

func (b *tools) Call(ctx context.Context, c harness.ToolCall) (harness.ToolResult, error) {
	b.mu.Lock()
	b.calls = append(b.calls, c)
	answer := b.answer
	b.mu.Unlock()
	if answer != nil {
		return answer(ctx, c)
	}
	return harness.ToolResult{Result: json.RawMessage(`{"content":[{"type":"text","text":"done"}]}`)}, nil
}

func (b *tools) called() []harness.ToolCall {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

// thread is the state of one thread.
type thread struct {
	mu        sync.Mutex
	head      harness.Head
	commitErr error
}

func (t *thread) revision() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head.Revision
}

type runThread struct {
	*thread
	r *recorder
}

func (t runThread) Load(context.Context, harness.Codec) (harness.Head, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head, nil
}

func (t runThread) Commit(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	return t.move(ctx, c, revision, payload, event.RunFinished{StopReason: "x"})
}

func (t runThread) Interrupt(ctx context.Context, c harness.Codec, revision uint64, payload []byte) error {
	i, ok := t.r.machine.Interrupt()
	if !ok {
		return fault.New(fault.Protocol, "test")
	}
	return t.move(ctx, c, revision, payload, event.RunInterrupted{InterruptID: i.InterruptID, Reason: i.InterruptType.Reason()})
}

func (t runThread) move(ctx context.Context, c harness.Codec, revision uint64, payload []byte, end event.Data) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return fault.From(ctx.Err(), "test")
	case t.commitErr != nil:
		return t.commitErr
	case revision != t.head.Revision || c.Version == 0 || !strings.HasPrefix(c.Name, "cofferdam.acp."):
		return fault.New(fault.RevisionConflict, "test")
	}
	if err := t.r.cover(end); err != nil {
		return err
	}
	t.head = harness.Head{Revision: revision + 1, Payload: payload}
	return nil
}

// files are contents by handle.
type files map[string]string

func (f files) Read(_ context.Context, file harness.File, _ int) ([]byte, error) {
	data, ok := f[file.Handle]
	if !ok {
		return nil, fault.New(fault.NotFound, "test")
	}
	return []byte(data), nil
}

func (files) Write(context.Context, harness.Upload, string, string, []byte) (string, error) {
	return "", errors.New("no uploads here")
}

func file(handle, name, media string, size uint64) harness.File {
	return harness.File{Handle: handle, DisplayName: name, MIMEType: media, Size: size}
}

// session is what the agent has kept.
func (s *stand) session(t *testing.T) string {
	t.Helper()
	return read(t, s.world.real(hosted.Home+"/sessions/ses-*.json"))
}

func (s *stand) workspace(t *testing.T, pattern string) string {
	t.Helper()
	return read(t, s.world.real(hosted.Workspace+"/"+pattern))
}

func read(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	must(t, err)
	if len(names) != 1 {
		t.Fatalf("%s: %v", pattern, names)
	}
	b, err := os.ReadFile(names[0])
	must(t, err)
	return string(b)
}

// noise does not compress.
func noise(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text())
	}
	return b.String()[:n]
}
