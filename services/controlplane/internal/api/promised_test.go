package api_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// promises reads the table of docs/protocol.md: how a run ends, by what fails.
func promises(t *testing.T) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(raw), "\n## When something else fails\n")
	if !ok {
		t.Fatal("docs/protocol.md has no section on what else fails")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	out := map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| What") {
			continue
		}
		what := strings.TrimSpace(cells[0])
		if _, twice := out[what]; twice {
			t.Fatalf("%q stands twice in the table", what)
		}
		out[what] = strings.TrimSpace(strings.ReplaceAll(cells[1], "`", ""))
	}
	return out
}

// elsewhere are the rows that need a real wire.
func elsewhere() []string {
	return []string{"the SVID of both sides is rotated in mid-stream"} // services/controlplane/internal/workerclient
}

// Each fault of the table ends a run as it says: once, with nothing after it, and
// the conversation goes on.
func TestEachFaultEndsARunAsPromised(t *testing.T) {
	t.Parallel()
	table, all := promises(t), troubles()
	for what := range table {
		if _, played := all[what]; !played && !slices.Contains(elsewhere(), what) {
			t.Errorf("no test plays that %s", what)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(all)) {
		want, ok := table[what]
		if !ok {
			t.Errorf("docs/protocol.md does not say what comes of it that %s", what)
			continue
		}
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			newTrouble(t, all[what]).play(t, want)
		})
	}
}

// fails is what goes wrong, and when.
type fails struct {
	// before is done when nothing has been asked for, meanwhile by the worker in the
	// middle of its text, and to what the client does with its stream.
	before    func(*trouble)
	meanwhile func(context.Context, *trouble, *runstest.Play) error
	asks      func(*testing.T, *trouble) (runID string)
	// impatient has the API give up a reader that takes nothing for a moment.
	impatient bool
	// talkative has the worker say that many bytes more before and after what goes
	// wrong.
	talkative int
	// timeout of the run, in seconds; 0 is long.
	timeout uint32
}

// trouble is an API on a domain in which something fails.
type trouble struct {
	fails
	*fixture

	store *rpctest.Backend
	// mint is the error of the capability service, if there is one, and clock what the
	// replica's clock is ahead.
	mint atomic.Pointer[fault.Error]
	// contents are those of the agent's file.
	contents agentstoretest.Contents
	clock    atomic.Int64
	// scales weigh what is kept; they may be nil. taken is how many bytes the control
	// plane has taken from the worker beside what every run says.
	scales *scales
	taken  atomic.Int64
}

var errAway = errors.New("nobody answers")

func away() *fault.Error { return fault.Wrap(errAway, fault.DependencyUnavailable, "test") }

func newTrouble(t *testing.T, f fails) *trouble {
	t.Helper()
	return newTroubleOn(t, f, bindingtest.NewMemory())
}

func newTroubleOn(t *testing.T, f fails, store binding.Backend) *trouble {
	t.Helper()
	d := &trouble{fails: f, store: &rpctest.Backend{Backend: store}}
	seconds := cmp.Or(f.timeout, 60)
	o := options{script: d.script, domain: runstest.Options{
		Backend: d.store, Minter: minter{d}, Contents: &d.contents, Folder: t.TempDir(),
		Now: func() time.Time { return time.Now().Add(time.Duration(d.clock.Load())) },
	}}
	if f.talkative > 0 { // each look at the record is a copy of it, and all takes longer
		seconds = cmp.Or(f.timeout, 300)
		o.domain.Change = func(c *runs.Config) {
			c.BeatEvery, c.TakeOverAfter, c.ReconcileEvery = time.Second, time.Minute, 200*time.Millisecond
		}
	}
	if f.impatient {
		o.buffer, o.change = 4<<10, func(c *api.Config) { c.WriteTimeout = 100 * time.Millisecond }
	}
	if err := os.WriteFile(filepath.Join(o.domain.Folder, "handbook.txt"), []byte("a file of the agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.domain.Catalogue = `{"agents":[{"agent_id":"demo","harness":"native","adapter_version":"1.0.0","model_alias":"demo","profile":"default","files":["handbook.txt"],` +
		`"limits":{"run_timeout_seconds":` + strconv.FormatUint(uint64(seconds), 10) + `,"max_model_calls":4,"max_tool_calls":4}}]}`
	d.fixture = newFixture(t, o)
	return d
}

type minter struct{ *trouble }

// Mint implements lease.Minter.
func (m minter) Mint(ctx context.Context, env fence.Envelope, subject, owner string, scopes []lease.Scope) ([]worker.Token, error) {
	if err := m.mint.Load(); err != nil {
		return nil, err
	}
	return runstest.Minter{}.Mint(ctx, env, subject, owner, scopes)
}

// script says something, lets it go wrong, goes on, and finishes.
func (d *trouble) script(s **runstest.Stack) runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}, event.TextDelta{MessageID: "m1", Delta: "before"}); err != nil {
			return err
		}
		// A frame that is taken says that the one before it is committed.
		if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: ", meanwhile"}); err != nil {
			return err
		}
		if p.Turn.Message == turnMessage {
			if err := d.goesWrong(ctx, p); err != nil {
				return err
			}
		}
		if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: ", after"}, event.TextFinished{MessageID: "m1"}); err != nil {
			return err
		}
		return finishes(ctx, s, p)
	}
}

const turnMessage = "go wrong"

func (d *trouble) goesWrong(ctx context.Context, p *runstest.Play) error {
	if d.timeout == 0 { // else time is what runs out
		if err := d.talks(ctx, p); err != nil {
			return err
		}
	}
	if d.meanwhile != nil {
		if err := d.meanwhile(ctx, d, p); err != nil {
			return err
		}
	}
	return d.talks(ctx, p)
}

// talks says a lot, if the worker is talkative.
func (d *trouble) talks(ctx context.Context, p *runstest.Play) error {
	delta := strings.Repeat("x", deltaBytes)
	for said := 0; said < d.talkative; said += len(delta) {
		if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: delta}); err != nil {
			return err
		}
		d.taken.Add(int64(len(delta)))
	}
	d.weighs(ctx, p)
	return nil
}

func (d *trouble) play(t *testing.T, want string) {
	t.Helper()
	if d.before != nil {
		d.before(d)
	}
	asks := d.asks
	if asks == nil {
		asks = func(t *testing.T, d *trouble) string { t.Helper(); return d.start(t, turnMessage) }
	}
	id := asks(t, d)
	got := "refused dependency_unavailable"
	if id != "" {
		got = endedAs(d.terminal(t, id))
	}
	d.weigh(t.Context())
	if got != want {
		t.Errorf("ended as %s, and docs/protocol.md says %s", got, want)
	}
	d.heal()
	if d.talkative > 0 {
		return // it is a matter of what is kept
	}
	log := d.logOf(t, id)
	if next := endedAs(d.ended(t, d.start(t, "go on"))); next != "run.finished" {
		t.Errorf("the next turn ended as %s", next)
	}
	if again := d.logOf(t, id); !bytes.Equal(again, log) {
		t.Errorf("the log has changed after its terminal:\n%s\n%s", log, again)
	}
}

// terminal waits for that of a run.
func (d *trouble) terminal(t *testing.T, id string) (e event.Event) {
	t.Helper()
	waittest.Until(t, "the run ends", func() bool {
		doc, err := d.store.LoadRun(t.Context(), id)
		return err == nil && json.Unmarshal(doc.Terminal, &e) == nil
	})
	return e
}

// heal ends what was wrong.
func (d *trouble) heal() {
	d.mint.Store(nil)
	d.contents.Away(nil)
	d.store.RefuseWrites(nil)
	d.store.AfterWrite(nil)
	d.grants.leave(nil)
}

func endedAs(e event.Event) string {
	switch d := e.Data.(type) {
	case event.RunError:
		return string(e.Type()) + " " + d.Code
	case event.RunCancelled:
		return string(e.Type()) + " " + string(d.Reason)
	}
	return string(e.Type())
}

// logOf gives the log of a run that has ended, which has one terminal, at its end.
func (d *trouble) logOf(t *testing.T, id string) []byte {
	t.Helper()
	if id == "" {
		return nil
	}
	doc, err := d.store.LoadRun(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var events []event.Event
	var log []byte
	for ended := false; !ended; {
		page, err := d.stack.Writer.Events(t.Context(), doc.BindingID, id, uint64(len(events)), 0)
		if err != nil || len(page.Events) == 0 {
			t.Fatalf("after %d events of %d: %v", len(events), doc.Events, err)
		}
		for _, raw := range page.Events {
			var e event.Event
			if err := json.Unmarshal(raw, &e); err != nil {
				t.Fatal(err)
			}
			events, log = append(events, e), append(log, raw...)
		}
		ended = page.Ended
	}
	for i, e := range events {
		if last := i == len(events)-1; e.Type().Terminal() != last {
			t.Errorf("event %d of %d is %s", i, len(events), e.Type())
		}
	}
	return log
}

// lasting keeps something as it is for a while.
func lasting(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// steps moves the clock of the replica.
func steps(by time.Duration) func(context.Context, *trouble, *runstest.Play) error {
	return func(_ context.Context, d *trouble, _ *runstest.Play) error {
		d.clock.Store(int64(by))
		return nil
	}
}

// goes lets the worker wait until the run is ended from outside.
func goes(ctx context.Context, _ *trouble, _ *runstest.Play) error {
	<-ctx.Done()
	return ctx.Err()
}

// pours says a lot.
func pours(ctx context.Context, _ *trouble, p *runstest.Play) error {
	for range 8 {
		if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: strings.Repeat("x", 8<<10)}); err != nil {
			return err
		}
	}
	return nil
}

// breathe is between two of many things that a worker says: enough comes to fill what
// is between it and a client, and not a log of the largest size.
func breathe(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Millisecond):
		return nil
	}
}

// stream sends the message as an AG-UI client, whose stream the run belongs to. It is
// not read, and leave lets go of it, as the end of the test does.
func (d *trouble) stream(t *testing.T) (id string, leave func()) {
	t.Helper()
	body := `{"threadId":"c1","runId":"r1","state":{},"messages":[{"id":"u1","role":"user","content":"` + turnMessage + `"}],"tools":[],"context":[],"forwardedProps":{}}`
	ctx, cancel := context.WithCancel(t.Context())
	res, err := d.client.Do(d.request(t, http.MethodPost, agui, body).WithContext(ctx))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	leave = func() { cancel(); _ = res.Body.Close() }
	t.Cleanup(leave)
	return d.run(t), leave
}

func troubles() map[string]fails {
	type play = runstest.Play
	return map[string]fails{
		"a worker sends what the lifecycle forbids": {meanwhile: func(ctx context.Context, _ *trouble, p *play) error {
			f := p.Frame
			f.Events = []event.Event{event.Draft{Data: event.TextDelta{MessageID: "never-started", Delta: "x"}}.
				Event(p.Turn.Envelope.RunID, p.Turn.ConversationID, p.LastSequence()+1, time.Now().UTC())}
			return p.Send(ctx, f)
		}},
		"a worker is gone": {meanwhile: func(ctx context.Context, d *trouble, p *play) error {
			rec, err := d.store.Load(ctx, p.Turn.Envelope.BindingID)
			if err != nil {
				return err
			}
			d.stack.Provider.Kill(rec.Lease.ClaimName)
			<-ctx.Done()
			return ctx.Err()
		}},
		"a worker's stream is cut in the middle of a frame": {meanwhile: func(context.Context, *trouble, *play) error {
			return fault.Wrap(io.ErrUnexpectedEOF, fault.DependencyUnavailable, "test")
		}},
		"the database is slow": {meanwhile: func(_ context.Context, d *trouble, _ *play) error {
			d.store.AfterWrite(func(err error) error { return errors.Join(err, lasting(context.Background(), 50*time.Millisecond)) })
			return nil
		}},
		"the database is away for a while": {meanwhile: func(ctx context.Context, d *trouble, p *play) error {
			d.store.RefuseWrites(errAway)
			defer d.store.RefuseWrites(nil)
			said := make(chan error, 1)
			go func() {
				err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: ", held back"})
				if err == nil {
					err = d.talks(ctx, p)
				}
				said <- err
			}()
			err := lasting(ctx, 300*time.Millisecond)
			d.weighs(ctx, p)
			d.store.RefuseWrites(nil)
			return errors.Join(err, <-said)
		}},
		"the database is away until the deadline": {timeout: 6, meanwhile: func(_ context.Context, d *trouble, p *play) error {
			d.store.RefuseWrites(errAway)
			time.AfterFunc(time.Until(p.Turn.Envelope.Deadline)+200*time.Millisecond, func() { d.store.RefuseWrites(nil) })
			return nil
		}},
		"the capability service is away when a run begins": {before: func(d *trouble) { d.mint.Store(away()) }},
		"the capability service is away in a run": {meanwhile: func(_ context.Context, d *trouble, _ *play) error {
			d.mint.Store(away())
			return nil
		}},
		"the file broker is away when a worker is bound": {before: func(d *trouble) { d.contents.Away(away()) }},
		"the file broker is away in a run": {meanwhile: func(_ context.Context, d *trouble, _ *play) error {
			d.contents.Away(away())
			return nil
		}},
		"OpenFGA is away when a run is asked for": {
			before: func(d *trouble) { d.grants.leave(away()) },
			asks: func(t *testing.T, d *trouble) string {
				t.Helper()
				a := d.post(t, "/api/v1/runs", `{"agent_id":"demo","conversation_id":"c1","message":"`+turnMessage+`"}`)
				if f := a.fault(t); a.status != http.StatusServiceUnavailable || f.Code != fault.DependencyUnavailable {
					t.Errorf("answered %d %s", a.status, a.body)
				}
				return ""
			},
		},
		"OpenFGA is away in a run": {meanwhile: func(ctx context.Context, d *trouble, _ *play) error {
			d.grants.leave(away())
			defer d.grants.leave(nil) // whoever reads is asked about, too
			return lasting(ctx, 100*time.Millisecond)
		}},
		"a client goes away whose stream the run belongs to": {meanwhile: goes, asks: func(t *testing.T, d *trouble) string {
			t.Helper()
			id, leave := d.stream(t)
			leave()
			return id
		}},
		"a client stalls whose stream the run belongs to": {
			impatient: true,
			meanwhile: func(ctx context.Context, d *trouble, p *play) error {
				for { // more than anybody holds for who does not read
					if err := pours(ctx, d, p); err != nil {
						return err
					}
					if err := breathe(ctx); err != nil {
						return err
					}
				}
			},
			asks: func(t *testing.T, d *trouble) string {
				t.Helper()
				id, _ := d.stream(t)
				return id
			},
		},
		"another reader goes away": {meanwhile: pours, asks: func(t *testing.T, d *trouble) string {
			t.Helper()
			id := d.start(t, turnMessage)
			d.reader(t, id, "")()
			return id
		}},
		"another reader stalls": {meanwhile: pours, asks: func(t *testing.T, d *trouble) string {
			t.Helper()
			id := d.start(t, turnMessage)
			d.reader(t, id, "") // which reads no further
			return id
		}},
		"the deadline comes":               {timeout: 5, meanwhile: goes},
		"the clock steps a second forward": {meanwhile: steps(time.Second)},
		"the clock steps a second back":    {meanwhile: steps(-time.Second)},
	}
}
