package api_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

// talk is a run with a text, a tool call and another text.
func talk(s **runstest.Stack) runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		steps := []event.Data{
			started(),
			event.TextStarted{MessageID: "m1"},
			event.TextDelta{MessageID: "m1", Delta: "I look.\n"},
			event.TextFinished{MessageID: "m1"},
			event.ToolStarted{ToolCallID: "c1", ToolName: "fs.read_text_file", Arguments: `{"path":"a.txt"}`, ParentMessageID: "m1"},
			event.ToolFinished{ToolCallID: "c1", Result: `"one <line>"`},
			event.TextStarted{MessageID: "m2"},
			event.TextDelta{MessageID: "m2", Delta: "It has "},
			event.TextDelta{MessageID: "m2", Delta: "one line."},
			event.TextFinished{MessageID: "m2"},
		}
		for _, d := range steps {
			if err := p.Emit(ctx, d); err != nil {
				return err
			}
		}
		return finishes(ctx, s, p)
	}
}

func TestCanonicalStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: talk})
	id := f.start(t, "hi")
	a := f.get(t, "/api/v1/runs/"+id+"/stream") // live: it ends with the run
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", a.status, a.header)
	}
	live := frames(t, a.body)
	for i, fr := range live {
		o := fr.object(t)
		if fr.id != strconv.Itoa(i) || fr.event != o["type"] || o["sequence"] != float64(i) || o["run_id"] != id {
			t.Errorf("frame %d is %+v", i, fr)
		}
	}
	if len(live) != 11 || live[10].event != string(event.TypeRunFinished) {
		t.Fatalf("%d frames, the last one %+v", len(live), live[len(live)-1])
	}
	if replay := frames(t, f.get(t, "/api/v1/runs/"+id+"/stream?protocol=canonical").body); !slices.Equal(live, replay) {
		t.Errorf("live\n%v\nand again\n%v", live, replay)
	}
	for name, c := range map[string]struct {
		query, header string
		from          int
	}{
		"after":                {"?after=3", "", 4},
		"the header":           {"", "3", 4},
		"the header wins":      {"?after=7", "0", 1},
		"an empty header":      {"?after=7", "", 8},
		"the last":             {"?after=10", "", 11},
		"more than there is":   {"?after=4711", "", 11},
		"the largest there is": {"?after=9007199254740991", "", 11},
	} {
		r := f.request(t, http.MethodGet, "/api/v1/runs/"+id+"/stream"+c.query, "")
		r.Header.Set("Last-Event-ID", c.header)
		if got := frames(t, f.send(t, r).body); !slices.Equal(got, live[c.from:]) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAGUIStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: talk})
	id := f.start(t, "hi")
	f.ended(t, id)
	whole := frames(t, f.get(t, "/api/v1/runs/"+id+"/stream?protocol=agui").body)
	want := []string{
		"RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT",
		"TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED",
	}
	if got := kinds(whole); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	first := whole[0].object(t)
	if first["threadId"] != "c1" || first["runId"] != id {
		t.Errorf("%v", first)
	}
	// An event of several frames has its id on the last one.
	ids := []string{"0", "1", "2", "3", "", "4", "", "5", "6", "7", "8", "9", "10"}
	for i, fr := range whole {
		if fr.id != ids[i] || fr.event != "" {
			t.Errorf("frame %d is %+v", i, fr)
		}
	}
	for after, c := range map[int]struct {
		first string // id of RUN_STARTED
		kinds []string
	}{
		0:  {"0", want[1:]},
		2:  {"2", append([]string{"TEXT_MESSAGE_START"}, want[3:]...)},
		3:  {"3", want[4:]},
		4:  {"4", append([]string{"TOOL_CALL_START"}, want[6:]...)},
		7:  {"7", append([]string{"TEXT_MESSAGE_START"}, want[10:]...)},
		9:  {"9", want[12:]},
		10: {"10", want[12:]},
		99: {"99", want[12:]},
	} {
		got := frames(t, f.get(t, "/api/v1/runs/"+id+"/stream?protocol=agui&after="+strconv.Itoa(after)).body)
		if k := kinds(got); !slices.Equal(k, append([]string{"RUN_STARTED"}, c.kinds...)) || got[0].id != c.first {
			t.Errorf("after %d: %s, %v", after, got[0].id, k)
		}
	}
}

// A stream that has nothing to say shows that it lives, and finds out that its
// client has gone; the run goes on.
func TestAReaderThatGoesAwayChangesNothing(t *testing.T) {
	t.Parallel()
	proceed := make(chan struct{})
	f := newFixture(t, options{
		change: func(c *api.Config) { c.IdleComment = 10 * time.Millisecond },
		script: func(s **runstest.Stack) runstest.Script {
			return func(ctx context.Context, p *runstest.Play) error {
				if err := p.Emit(ctx, started()); err != nil {
					return err
				}
				select {
				case <-proceed:
					return finishes(ctx, s, p)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		},
	})
	id := f.start(t, "hi")
	ctx, goAway := context.WithCancel(t.Context())
	defer goAway()
	for _, protocol := range []string{"canonical", "agui"} {
		res, err := f.client.Do(f.request(t, http.MethodGet, "/api/v1/runs/"+id+"/stream?protocol="+protocol, "").WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		lines := bufio.NewReader(res.Body)
		for n := 0; n < 3; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == ": \n" {
				n++
			}
		}
	}
	goAway()
	close(proceed)
	if end := f.ended(t, id); end.Type() != event.TypeRunFinished {
		t.Errorf("the run ended with %+v", end.Data)
	}
}

// floods emits far more than a connection holds.
func floods(s **runstest.Stack) runstest.Script {
	return func(ctx context.Context, p *runstest.Play) error {
		if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}); err != nil {
			return err
		}
		for range 16 {
			if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: strings.Repeat("x", 16<<10)}); err != nil {
				return err
			}
		}
		if err := p.Emit(ctx, event.TextFinished{MessageID: "m1"}); err != nil {
			return err
		}
		return finishes(ctx, s, p)
	}
}

// A client that reads nothing is dropped after a while. Nothing is kept for it,
// and the run does not wait for it.
func TestAReaderThatStallsIsDropped(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: floods, buffer: 4 << 10, change: func(c *api.Config) { c.WriteTimeout = 50 * time.Millisecond }})
	id := f.start(t, "hi")
	res, err := f.client.Do(f.request(t, http.MethodGet, "/api/v1/runs/"+id+"/stream", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if end := f.ended(t, id); end.Type() != event.TypeRunFinished {
		t.Errorf("the run ended with %+v", end.Data)
	}
	// The end of the run came after the time for a write was over, so what is left
	// to read is what was on its way.
	n, err := io.Copy(io.Discard, res.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) && err == nil {
		t.Errorf("the stream of a stalled client was whole: %d bytes", n)
	}
}
