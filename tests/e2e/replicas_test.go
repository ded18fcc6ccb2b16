package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// replicas is a stack with three replicas of the control plane, of which any can be
// asked.
type replicas struct {
	*world

	apis []*apiclient.Client
}

// openReplicas starts one. A replica is taken for gone once it has been silent for
// five seconds, in which it says five times that it is there.
func openReplicas(t *testing.T, command string, flags ...string) *replicas {
	t.Helper()
	w, err := open(command, append(flags, "--replicas", "3", "--take-over-after", "5s")...)
	if err != nil {
		t.Fatal(err)
	}
	r := &replicas{world: w}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	for i := range w.Replicas {
		c, err := w.ReplicaClient(t.Context(), i, stack.User)
		if err != nil {
			t.Fatal(err)
		}
		r.apis = append(r.apis, c)
	}
	if len(r.apis) != 3 {
		t.Fatalf("%d replicas answer: %s", len(r.apis), w.Line)
	}
	return r
}

// at is the conversation as another replica sees it.
func (r *replicas) at(c *talk, replica int) *talk {
	return &talk{c.w, r.apis[replica], c.conversation}
}

// signal sends a signal to the process of a replica.
func (r *replicas) signal(t *testing.T, replica int, s syscall.Signal) {
	t.Helper()
	p, err := r.Replica(replica)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.PID, s); err != nil {
		t.Fatal(err)
	}
}

// Several replicas share a store and the sandboxes of their machine: what one began
// another one reads, cancels, goes on with, and brings to its end.
func TestReplicas(t *testing.T) {
	r := openReplicas(t, stack.Need(t))
	t.Run("any of them starts the next turn on the same worker", r.nextTurns)
	t.Run("cancel and stream work where the run is not driven", r.elsewhere)
	t.Run("one goes", func(t *testing.T) { // the two wait at the same time
		t.Run("the run of one that dies ends truthfully", func(t *testing.T) { t.Parallel(); r.death(t) })
		t.Run("one that was taken for dead drives nothing when it wakes", func(t *testing.T) { t.Parallel(); r.pause(t) })
	})
	t.Run("a rolling restart loses nothing that was acknowledged", r.rollingRestart)
	t.Run("a sandbox host that dies takes its sandboxes along, and the conversations go on", r.hostDies)
}

func (r *replicas) nextTurns(t *testing.T) {
	c := r.talk()
	first := r.at(c, 0).tell(t, "remember the heron")
	worker := c.binding(t, first.BindingID).Sandbox
	for i := range 6 {
		turn := r.at(c, i%3).tell(t, "turn "+strconv.Itoa(i))
		b := c.binding(t, turn.BindingID)
		if b.Generation != 1 || b.Sandbox == nil || worker == nil || *b.Sandbox != *worker {
			t.Errorf("turn %d: generation %d on %+v, began on %+v", i, b.Generation, b.Sandbox, worker)
		}
	}
}

func (r *replicas) elsewhere(t *testing.T) {
	c := r.talk()
	run := r.at(c, 0).begin(t, ">>say before\n>>sleep 60000\n>>say after")
	r.at(c, 1).sees(t, run.RunID, "text.delta")
	got, err := r.apis[2].Cancel(t.Context(), run.RunID)
	if err != nil || !got.Cancelled || !got.Confirmed {
		t.Errorf("answered %+v, %v", got, err)
	}
	for i := range 3 {
		if end := r.at(c, i).end(t, run).cancelled(t); end.Reason != "client_request" {
			t.Errorf("replica %d says %+v", i, end)
		}
	}
}

func (r *replicas) death(t *testing.T) {
	c := r.talk()
	name := "x-" + rand.Text()
	run := r.at(c, 1).begin(t, `>>call gate.pass {"name":"`+name+`"}`)
	r.called(t, name)
	r.signal(t, 1, syscall.SIGKILL)
	ended := r.at(c, 0).end(t, run)
	r.lost(t, ended, "possible")
	if err := r.gate.Open(name); err != nil {
		t.Fatal(err)
	}
	next := r.at(c, 0).tell(t, "go on")
	if b := c.binding(t, next.BindingID); b.Generation != 2 {
		t.Errorf("generation %d: the worker of a run that nobody drives is met again", b.Generation)
	}
	if n, err := r.gate.Calls(name); err != nil || n != 1 {
		t.Errorf("called %d times, %v", n, err)
	}
}

// lost checks the terminal of a run whose replica went away.
func (r *replicas) lost(t *testing.T, ended turn, effects string) {
	t.Helper()
	var end struct {
		Code    string `json:"code"`
		Effects string `json:"side_effect_status"`
	}
	if err := json.Unmarshal(ended.last().Data, &end); err != nil {
		t.Fatal(err)
	}
	if ended.last().Type != "run.error" || end.Code != "control_plane_lost" || end.Effects != effects {
		t.Errorf("ended as %s %+v", ended.last().Type, end)
	}
}

// A leader that had lost its lease still acted (cilium 42920): a replica that was
// stopped for longer than the others wait has a run, its worker's stream and much
// to write when it wakes, and writes none of it.
func (r *replicas) pause(t *testing.T) {
	c, run, wake := r.stopped(t)
	ended := r.at(c, 0).end(t, run)
	for n := 1; n < aims && ended.last().Type == "run.finished"; n++ {
		wake() // it was over by then: another conversation
		c, run, wake = r.stopped(t)
		ended = r.at(c, 0).end(t, run)
	}
	r.lost(t, ended, "none")
	next := r.at(c, 0).tell(t, "go on") // the other one dies meanwhile
	wake()
	if last := r.at(c, 2).tell(t, "and on"); c.binding(t, last.BindingID).Generation != c.binding(t, next.BindingID).Generation {
		t.Error("the replica that woke replaced the worker of the others")
	}
	again := r.at(c, 2).end(t, run)
	if len(again.events) != len(ended.events) {
		t.Errorf("%d events of a run that had ended with %d", len(again.events), len(ended.events))
	}
}

// stopped stops a replica that has a run, which goes on at its worker.
func (r *replicas) stopped(t *testing.T) (c *talk, run apiclient.Started, wake func()) {
	t.Helper()
	c = r.talk()
	run = r.at(c, 2).begin(t, ">>say before\n>>sleep 3000\n>>say after")
	r.at(c, 0).sees(t, run.RunID, "text.delta")
	return c, run, r.holdQuietly(t, func() func() {
		p, err := r.Replica(2)
		if err != nil {
			t.Fatal(err)
		}
		return hold(t, p)
	})
}

// Each replica is ended in order and comes back, one after the other, while others
// are asked for turns all the time. A request that gets no answer is made again with
// its key. What was answered stands, each run has one end, and no turn that was
// acknowledged is missing.
func (r *replicas) rollingRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*runTimeout)
	defer cancel()
	rolling, over := context.WithCancel(ctx)
	var mu sync.Mutex
	acknowledged := map[string]string{} // runs by key
	var g errgroup.Group
	for n := range 3 {
		g.Go(func() error {
			conversation := "c-" + rand.Text()
			for i := 0; rolling.Err() == nil; i++ {
				key := conversation + "-" + strconv.Itoa(i)
				var s apiclient.Started
				err := stack.Until(ctx, func() (_ bool, err error) {
					s, err = r.apis[(n+i)%3].Start(ctx, apiclient.Start{AgentID: stack.Agent, ConversationID: conversation, Message: ">>say " + key, IdempotencyKey: key})
					return err == nil, err
				})
				if err != nil {
					return fmt.Errorf("start of %s: %w", key, err)
				}
				mu.Lock()
				acknowledged[key] = s.RunID
				mu.Unlock()
				if err := r.untilEnded(ctx, s.RunID, n+i); err != nil {
					return fmt.Errorf("%s, run %s: %w", key, s.RunID, err)
				}
			}
			return nil
		})
	}
	for i := range 3 {
		before, err := r.Replica(i)
		if err == nil {
			err = syscall.Kill(before.PID, syscall.SIGTERM)
		}
		if err != nil {
			t.Error(err)
			break
		}
		err = stack.Until(ctx, func() (bool, error) {
			now, err := r.Replica(i)
			if err != nil || now.PID == before.PID {
				return false, err
			}
			_, err = r.apis[i].InterruptState(ctx, "c-nobody", stack.Agent)
			return err == nil, err
		})
		if err != nil {
			t.Errorf("replica %d does not come back: %v", i, err)
		}
	}
	over()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if len(acknowledged) < 6 {
		t.Errorf("only %d runs: hardly anything is shown", len(acknowledged))
	}
	for key, id := range acknowledged {
		events, ended, err := r.user.Log(ctx, id, pageSize)
		if err != nil || !ended {
			t.Errorf("%s, run %s: ended %v, %v", key, id, ended, err)
			continue
		}
		terminals := 0
		for _, e := range events {
			if e.Terminal() {
				terminals++
			}
		}
		switch last := events[len(events)-1]; {
		case terminals != 1 || !last.Terminal():
			t.Errorf("%s: %d terminals, and %s at the end", key, terminals, last.Type)
		case last.Type == "run.error":
			t.Errorf("%s ended as %s: a replica that ends in order loses no run", key, last.Raw)
		}
	}
}

func (r *replicas) untilEnded(ctx context.Context, runID string, replica int) error {
	return stack.Until(ctx, func() (bool, error) {
		replica++ // one that is away is passed over
		run, err := r.apis[replica%3].Run(ctx, runID)
		return err == nil && run.State == "ended", err
	})
}

func (r *replicas) hostDies(t *testing.T) {
	c := r.talk()
	mark := word()
	first := r.at(c, 0).tell(t, mark)
	r.killProgram(t, "sandboxhost")()
	next := r.at(c, 1).tell(t, "What do you remember?")
	if !strings.Contains(next.text(t), mark) {
		t.Errorf("it remembers %q", next.text(t))
	}
	if b := c.binding(t, next.BindingID); b.Generation <= 1 || next.finished(t) != first.finished(t)+1 {
		t.Errorf("generation %d, revision %d after %d", b.Generation, next.finished(t), first.finished(t))
	}
}
