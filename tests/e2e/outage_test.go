package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// One part after the other is killed while a run is under way. However the run
// ends, its log must be the truth: what it calls finished is remembered, what it
// does not is not, and the next run works.
func TestARunEndsTruthfullyWhenAPartIsKilled(t *testing.T) {
	w := theStack(t)
	for _, c := range []struct {
		part string
		// fails says that the run cannot finish: it would go on for long without the part.
		fails bool
	}{
		{"statefacade", false},
		{"toolbroker", false},
		{"filebroker", false},
		{"capability", false},
		{"cofferdam-openfga", false},
		{"modelproxy", true},
	} {
		t.Run(c.part, func(t *testing.T) {
			talk := w.talk()
			name, line := w.sample(t)
			talk.tell(t, "a first turn, so that there is a head")
			mark := "mark-" + rand.Text()
			sleep := ">>sleep 700\n"
			if c.fails {
				sleep = ">>sleep 60000\n"
			}
			run := talk.begin(t, ">>say going\n"+sleep+read(name)+"\n"+mark)
			talk.sees(t, run.RunID, "text.delta")
			back := w.killProgram(t, c.part)
			r := talk.end(t, run)
			back()
			t.Logf("ended as %s %s", r.last().Type, r.last().Data)
			r.toolsEndOnce(t, line)
			finished := r.last().Type == "run.finished"
			if finished && c.fails {
				t.Errorf("finished without a model: %s", r)
			}
			if !finished && r.failure(t).Code == "internal" {
				t.Errorf("a part that is away is no defect: %s", r)
			}
			next := talk.tell(t, "What do you remember?")
			if knows := strings.Contains(next.text(t), mark); knows != finished {
				t.Errorf("finished: %v, remembered: %v: %q", finished, knows, next.text(t))
			}
			if !strings.Contains(next.text(t), "a first turn") {
				t.Errorf("the head before it is lost: %q", next.text(t))
			}
		})
	}
}

// The same with a part that is not there when the run begins: it is waited for, or
// the run is refused or fails, and the next one works.
func TestARunThatBeginsWithoutAPartIsNoLie(t *testing.T) {
	w := theStack(t)
	for _, part := range []string{"statefacade", "toolbroker", "filebroker", "capability", "cofferdam-openfga", "modelproxy"} {
		t.Run(part, func(t *testing.T) {
			talk := w.talk()
			name, line := w.sample(t)
			mark := "mark-" + rand.Text()
			file := apiclient.File{Name: "note.txt", MIMEType: "text/plain", Data: []byte(mark)}
			back := w.killProgram(t, part)
			run, err := w.user.Start(t.Context(), apiclient.Start{
				AgentID: stack.Agent, ConversationID: talk.conversation, Message: "look\n" + read(name), Files: []apiclient.File{file},
			})
			finished := false
			if err != nil {
				t.Logf("refused: %v", err)
				refused(t, "start", err, http.StatusServiceUnavailable, "dependency_unavailable")
			} else {
				r := talk.end(t, run)
				t.Logf("ended as %s %s", r.last().Type, r.last().Data)
				r.toolsEndOnce(t, line)
				finished = r.last().Type == "run.finished"
				if !finished && r.failure(t).Code == "internal" {
					t.Errorf("a part that is away is no defect: %s", r)
				}
			}
			back()
			if knows := strings.Contains(talk.tell(t, "What do you remember?").text(t), mark); knows != finished {
				t.Errorf("finished: %v, remembered: %v", finished, knows)
			}
		})
	}
}

// toolsEndOnce checks that what a tool is said to have answered is what the file
// says.
func (r turn) toolsEndOnce(t *testing.T, line string) {
	t.Helper()
	started, finished := r.of("tool.started"), r.of("tool.finished")
	if len(started) > 1 || len(finished)+len(r.of("tool.error")) > len(started) {
		t.Errorf("tools: %s", r)
	}
	for _, e := range finished {
		if !strings.Contains(string(e.Data), line) {
			t.Errorf("a result of something else: %s", e.Raw)
		}
	}
}

func TestARunWhoseWorkerDiesIsAnErrorAndNoSuccess(t *testing.T) {
	w := theStack(t)
	c := w.talk()
	mark := "mark-" + rand.Text()
	run := c.begin(t, ">>say half\n>>sleep 60000\n"+mark)
	c.sees(t, run.RunID, "text.delta")
	kill(t, c.worker(t, run.BindingID))
	r := c.end(t, run)
	if f := r.failure(t); f.Code != "sandbox_evicted" || f.SideEffects != "none" {
		t.Errorf("failed as %+v", f)
	}
	if len(r.of("text.started")) != len(r.of("text.finished")) {
		t.Errorf("a text is left open: %s", r)
	}
	next := c.tell(t, "What do you remember?")
	if strings.Contains(next.text(t), mark) {
		t.Errorf("remembers what was never committed: %q", next.text(t))
	}
	if status, err := w.user.Run(t.Context(), next.RunID); err != nil || status.Generation != 2 {
		t.Errorf("%+v, %v", status, err)
	}
}

// The broker dies while the tool works. Nobody can know what the tool did, so it
// is not called again, and the run says so.
func TestAToolCallWhoseOutcomeIsUnknownIsNotRepeated(t *testing.T) {
	w := theStack(t)
	c := w.talk()
	name := "u-" + rand.Text()
	run := c.begin(t, `>>call gate.pass {"name":"`+name+`"}`)
	w.called(t, name)
	back := w.killProgram(t, "toolbroker")
	if err := w.gate.Open(name); err != nil { // whoever calls again gets through
		t.Fatal(err)
	}
	r := c.end(t, run)
	back()
	failures := r.of("tool.error")
	if len(failures) != 1 || len(r.of("tool.finished")) > 0 {
		t.Fatalf("want one call without a result: %s", r)
	}
	var failure struct {
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
	}
	data(t, failures[0], &failure)
	if failure.Code != "tool_outcome_unknown" || failure.Retryable {
		t.Errorf("the model is told %s", failures[0].Data)
	}
	if status := c.ended(t, r); status.SideEffects != "possible" {
		t.Errorf("side effects %q", status.SideEffects)
	}
	c.tell(t, "go on")
	if n, err := w.gate.Calls(name); err != nil || n != 1 {
		t.Errorf("called %d times, %v", n, err)
	}
}

// What anybody saw of a run is in its log, also when the control plane dies, and
// a run that nobody drives any more says so.
func TestTheLogGoesOnFromWhatWasSeenWhenTheControlPlaneDies(t *testing.T) {
	w := theStack(t)
	c := w.talk()
	c.tell(t, "a first turn, so that there is a head")
	mark := "mark-" + rand.Text()
	run := c.begin(t, ">>repeat 20 half\n>>sleep 60000\n"+mark)
	worker := c.workerOf(t, run)

	ctx, cancel := context.WithTimeout(t.Context(), conditionTimeout)
	defer cancel()
	stream, err := w.user.Stream(ctx, run.RunID, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }() // it is broken by then
	var seen []apiclient.Event
	for len(seen) < 10 {
		e, err := stream.NextEvent()
		if err != nil {
			t.Fatalf("after %d events: %v", len(seen), err)
		}
		seen = append(seen, e)
	}
	back := w.killProgram(t, "controlplane")
	rest, err := stream.Rest()
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the stream of a run that goes on came to an end: %d more events, %v", len(rest), err)
	}
	seen = append(seen, rest...)
	back()
	until(t, "end of the worker", func(context.Context) (bool, error) { return !worker.Alive(), nil })
	w.answers(t)
	w.talk().tell(t, "somebody else is served meanwhile")

	r := c.end(t, run) // from its beginning, with the control plane that is there now
	if f := r.failure(t); f.Code != "control_plane_lost" {
		t.Errorf("failed as %+v", f)
	}
	if len(r.events) < len(seen) {
		t.Fatalf("%d events were seen, the log has %d", len(seen), len(r.events))
	}
	for i, e := range seen {
		if string(e.Raw) != string(r.events[i].Raw) {
			t.Errorf("event %d was seen as %s and is %s", i, e.Raw, r.events[i].Raw)
		}
	}
	next := c.tell(t, "What do you remember?")
	if text := next.text(t); strings.Contains(text, mark) || !strings.Contains(text, "a first turn") {
		t.Errorf("remembers %q", text)
	}
}

// answers waits until the public API answers: a listener that a dead process
// left to the next one lets requests wait, and those that it had taken fail.
func (w *world) answers(t *testing.T) {
	t.Helper()
	until(t, "answer of the API", func(ctx context.Context) (bool, error) {
		_, err := w.user.Run(ctx, "run_none")
		if apiclient.CodeOf(err) == "not_found" {
			return true, nil
		}
		return false, err
	})
}
