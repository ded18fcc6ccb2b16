package api_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding/bindingtest"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agents/agentstore/agentstoretest"
	"cofferdam.dev/services/controlplane/internal/api"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/runs/runstest"
)

const cancelStart = `{"agent_id":"demo","conversation_id":"c1","message":"hi","idempotency_key":"k1","on_disconnect":"cancel"}`

// reader reads a stream of a run up to its first text, and leaves when it is told to.
func (f *fixture) reader(t *testing.T, id, query string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	res, err := f.client.Do(f.request(t, http.MethodGet, "/api/v1/runs/"+id+"/stream"+query, "").WithContext(ctx))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	leave = func() { cancel(); _ = res.Body.Close() }
	t.Cleanup(leave)
	lines := bufio.NewReader(res.Body)
	for line := ""; !strings.Contains(line, `"delta"`); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return leave
}

// A run that is cancelled on disconnect belongs to its first stream, in every
// encoding: whoever reads it besides changes nothing by going away.
func TestTheFirstStreamCancelsItsRun(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"?after=1", "?protocol=agui"} {
		f := newFixture(t, options{script: func(**runstest.Stack) runstest.Script { return waits }})
		var started, again struct {
			RunID string `json:"run_id"`
		}
		f.post(t, "/api/v1/runs", cancelStart).json(t, &started)
		leaveFirst := f.reader(t, started.RunID, query)
		leaveSecond := f.reader(t, started.RunID, query)
		leaveSecond()
		// The same request again is the same run, and gives nobody another first stream.
		if f.post(t, "/api/v1/runs", cancelStart).json(t, &again); again != started {
			t.Errorf("%q: %+v, then %+v", query, started, again)
		}
		f.reader(t, started.RunID, query)()
		var status struct{ State, End string }
		if f.get(t, "/api/v1/runs/"+started.RunID).json(t, &status); status.State != "running" || status.End != "" {
			t.Errorf("%q: %+v, and its first reader is there", query, status)
		}
		leaveFirst()
		cancelledByDisconnect(t, f, started.RunID)
	}
}

// Nobody is there yet to go away: such a run goes on without its first stream.
func TestARunThatAwaitsItsStreamGoesOnWithoutIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{script: talk})
	var started struct {
		RunID string `json:"run_id"`
	}
	f.post(t, "/api/v1/runs", cancelStart).json(t, &started)
	if end := f.ended(t, started.RunID); end.Type() != event.TypeRunFinished {
		t.Errorf("the run ended with %+v", end.Data)
	}
	if got := frames(t, f.get(t, "/api/v1/runs/"+started.RunID+"/stream?after=8").body); len(got) != 2 {
		t.Errorf("%v", got)
	}
	// How it ends is a part of what is asked for.
	refused(t, f.post(t, "/api/v1/runs", strings.Replace(cancelStart, `"cancel"`, `"continue"`, 1)), http.StatusConflict, fault.IdempotencyConflict, "")
}

// A client that its run belongs to is behind on a replica that does not drive the run:
// by too many bytes, or for too long. The run is cancelled all the same.
func TestAClientThatIsBehindOnAnotherReplicaCancelsItsRun(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*api.Config){
		"too many bytes": func(c *api.Config) { c.MaxBehind = 256 << 10 },
		"too long":       func(c *api.Config) { c.MaxLag = 300 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, agents := bindingtest.NewMemory(), &agentstoretest.Memory{}
			// A replica that is slow to beat is not to be taken for gone.
			patient := func(c *runs.Config) { c.TakeOverAfter = 10 * patience }
			drives := newFixture(t, options{
				script: func(**runstest.Stack) runstest.Script { return speaksWithoutEnd },
				domain: runstest.Options{Backend: store, Agents: agents, Owner: "cp-1", Change: patient},
			})
			other := newFixture(t, options{
				buffer: 4 << 10, change: change,
				domain: runstest.Options{Backend: store, Agents: agents, Owner: "cp-2", Beside: drives.stack, Change: patient},
			})
			var started struct {
				RunID string `json:"run_id"`
			}
			drives.post(t, "/api/v1/runs", cancelStart).json(t, &started)
			res, err := other.client.Do(other.request(t, http.MethodGet, "/api/v1/runs/"+started.RunID+"/stream", ""))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }() // nothing of it is read
			cancelledByDisconnect(t, drives, started.RunID)
		})
	}
}

// speaksWithoutEnd says more and more.
func speaksWithoutEnd(ctx context.Context, p *runstest.Play) error {
	if err := p.Emit(ctx, started(), event.TextStarted{MessageID: "m1"}); err != nil {
		return err
	}
	for { // until somebody ends it
		if err := p.Emit(ctx, event.TextDelta{MessageID: "m1", Delta: strings.Repeat("x", 8<<10)}); err != nil {
			return err
		}
		if err := breathe(ctx); err != nil {
			return err
		}
	}
}
