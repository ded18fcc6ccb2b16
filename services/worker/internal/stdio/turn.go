package stdio

import (
	"context"
	"errors"
	"sync"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
)

const (
	// exitGrace is how long a program may take to end once its turn is over.
	exitGrace = 2 * time.Second
	// killGrace lies between SIGTERM and SIGKILL.
	killGrace = 200 * time.Millisecond
	// deadlineGrace bounds the grace of a cancel by the deadline: the run has to
	// tell of its end while somebody still reads it.
	deadlineGrace = time.Second
	// killBound is how long the end of everything may take, besides its grace.
	killBound = 10 * time.Second
)

// turn is one turn of a program, from its start to the end of everything that it
// started.
type turn struct {
	*runtime
	harness.Facades
	emit    harness.Emitter
	runID   string
	uploads []harness.Upload

	program hosted.Program
	in      *input
	out     *output
	// finishing closes in.finish once.
	finishing sync.Once

	// fail ends the turn with a cause, from the goroutines of its calls.
	fail context.CancelCauseFunc
	// asked are the calls and other questions that are under way.
	asked asked
	// ready says that the program has said so.
	ready bool
	// drafted are the calls of tools that the program makes itself; brokered those
	// of whose events the broker's answers decide.
	drafted, brokered map[string]bool
	// decided are the calls that a person decided on and that may still be made.
	decided map[string]event.Object
	// state that came in pieces.
	state []byte
	logs  int
}

// ending is how a program wants its turn to end.
type ending struct {
	stopReason string
	state      []byte
	interrupt  *interruptMessage
}

// Stream runs one turn of the program.
func (r *runtime) Stream(ctx context.Context, in harness.Turn, f harness.Facades, emit harness.Emitter) (harness.Result, error) {
	t := r.turn(in.RunID, in.Uploads, f, emit)
	return t.play(ctx, func(ctx context.Context, state []byte) (any, error) {
		files, err := t.writeFiles(ctx, in.Files)
		if err != nil {
			return nil, err
		}
		return turnRequest{
			Type: "turn", thread: newThread(in.RunID, in.ConversationID, in.Deadline, state, in.Uploads),
			Message: in.Message, Files: files, ClientContext: in.ClientContext,
		}, nil
	})
}

func (r *runtime) turn(runID string, uploads []harness.Upload, f harness.Facades, emit harness.Emitter) *turn {
	return &turn{
		runtime: r, Facades: f, emit: emit, runID: runID, uploads: uploads, in: newInput(), out: newOutput(r.maxLines),
		drafted: map[string]bool{}, brokered: map[string]bool{}, decided: map[string]event.Object{},
	}
}

// play starts the program, talks to it, ends it with all that it started, and
// then keeps what it wants to be kept: nothing of it runs any more when the head
// moves.
func (t *turn) play(ctx context.Context, first func(ctx context.Context, state []byte) (any, error)) (harness.Result, error) {
	head, err := t.Thread.Load(ctx, t.Preset.codec())
	if err != nil {
		return harness.Result{}, err
	}
	state, err := stateOf(head)
	if err != nil {
		return harness.Result{}, err
	}
	if err := t.materialize(ctx); err != nil {
		return harness.Result{}, err
	}
	request, err := first(ctx, state)
	if err != nil {
		return harness.Result{}, err
	}
	end, err := t.host(ctx, request)
	if err != nil {
		return harness.Result{}, err
	}
	return t.keep(ctx, head.Revision, end)
}

// host runs the program.
func (t *turn) host(ctx context.Context, request any) (end ending, err error) {
	access, closeAccess, err := t.model(ctx)
	if err != nil {
		return ending{}, err
	}
	defer closeAccess()
	if err := t.writeHome(ctx); err != nil {
		return ending{}, err
	}
	if t.program, err = t.World.Start(ctx, t.Preset.command()); err != nil {
		// A world that lost the answer may have started it all the same.
		return ending{}, errors.Join(err, t.kill(ctx, 0))
	}
	turn, fail := context.WithCancelCause(ctx)
	t.fail = fail
	defer fail(nil)
	var pipes sync.WaitGroup
	pipes.Go(func() { t.in.write(t.program.Stdin()) })
	pipes.Go(func() { t.out.read(t.program.Stdout()) })
	defer func() {
		fail(nil) // ends the calls that are under way
		t.asked.Wait()
		if stopErr := t.stop(ctx, &pipes); stopErr != nil {
			end, err = ending{}, errors.Join(err, stopErr)
		}
	}()
	for _, r := range []any{t.initialize(access), request} {
		if err := t.in.send(turn, r); err != nil {
			return ending{}, t.cause(turn, err)
		}
	}
	end, err = t.converse(turn)
	if err == nil {
		err = t.quiet(turn)
	}
	if err != nil {
		return ending{}, t.cause(turn, err)
	}
	return end, nil
}

func (t *turn) model(ctx context.Context) (Access, func(), error) {
	if t.Endpoint == nil {
		return Access{}, func() {}, nil
	}
	a, err := t.Endpoint.Open(ctx, t.Model, t.construction.Limits)
	if err != nil {
		return Access{}, nil, fault.From(err, "stdio.model")
	}
	return a, a.Close, nil
}

// cause is why the turn ended, where a call of it knows better than err.
func (t *turn) cause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		return fault.From(cause, "stdio.turn")
	}
	return err
}

// stop ends the program and what it started, and waits for the ends of its
// pipes. A cancel is said to the program first.
func (t *turn) stop(ctx context.Context, pipes *sync.WaitGroup) error {
	if ctx.Err() != nil {
		t.cancel(ctx)
	}
	close(t.out.ignored)
	err := t.kill(ctx, killGrace)
	t.finish()
	closed := make(chan struct{})
	go func() { // ends with the pipes, which end with the processes
		pipes.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(killBound):
		err = errors.Join(err, fault.Wrap(errors.New("pipes of a program that has ended stay open"), fault.Internal, "stdio.stop"))
	}
	return err
}

// cancel asks the program to end, and gives it time to.
func (t *turn) cancel(ctx context.Context) {
	grace := time.Duration(t.Preset.CancelGrace)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		grace = min(grace, deadlineGrace)
	}
	wait, stop := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer stop()
	if t.in.send(wait, cancelRequest{Type: "cancel"}) != nil {
		return // it does not read
	}
	for {
		select {
		case _, more := <-t.out.lines:
			if !more {
				return
			}
		case <-t.program.Done():
			return
		case <-wait.Done():
			return
		}
	}
}

// finish lets what is queued be written, and nothing more.
func (t *turn) finish() { t.finishing.Do(func() { close(t.in.finish) }) }

// kill ends every process of the world, also when ctx has ended.
func (t *turn) kill(ctx context.Context, grace time.Duration) error {
	bound, stop := context.WithTimeout(context.WithoutCancel(ctx), grace+killBound)
	defer stop()
	if err := t.World.KillAll(bound, grace); err != nil {
		return fault.From(err, "stdio.kill")
	}
	return nil
}
