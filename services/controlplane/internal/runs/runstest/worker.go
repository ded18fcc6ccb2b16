package runstest

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// The harness that every worker claims to have.
const (
	HarnessID      = "native"
	AdapterVersion = "1.0.0"
)

// Script is what a worker does with a turn. It emits events through p; when it
// returns nil without a terminal the stream just ends, and its error breaks the
// stream.
type Script func(ctx context.Context, p *Play) error

// Play is one run of a script.
type Play struct {
	// Turn has the envelope in every case, and the message where it is no resume.
	Turn worker.Turn
	// Bound is what the worker was bound with.
	Bound worker.Binding
	// Resume is set where the run carries a decision out.
	Resume *worker.Resume
	// Frame may be changed by a script that lies about who it is.
	Frame   worker.Frame
	machine *event.Machine
	frames  chan<- worker.Frame
}

// Emit sends events as one frame, in order and rightly numbered.
func (p *Play) Emit(ctx context.Context, data ...event.Data) error {
	f := p.Frame
	for _, d := range data {
		e := p.machine.Stamp(event.Draft{Data: d}, time.Now().UTC())
		if err := p.machine.Accept(e); err != nil {
			return err
		}
		raw, err := event.Encode(e)
		if err != nil {
			return err
		}
		f.Events, f.Bytes = append(f.Events, e), f.Bytes+len(raw)
	}
	return p.Send(ctx, f)
}

// Send sends a frame as it is.
func (p *Play) Send(ctx context.Context, f worker.Frame) error {
	select {
	case p.frames <- f:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// LastSequence of what was emitted.
func (p *Play) LastSequence() uint64 { return p.machine.Next() - 1 }

// Text emits a whole message.
func (p *Play) Text(ctx context.Context, id, text string) error {
	return p.Emit(ctx, event.TextStarted{MessageID: id}, event.TextDelta{MessageID: id, Delta: text}, event.TextFinished{MessageID: id})
}

// Workers makes the clients of all instances. It implements worker.Dialer.
type Workers struct {
	mu     sync.Mutex
	script Script
	by     map[string]*Worker
}

// NewWorkers makes Workers that play the script.
func NewWorkers(s Script) *Workers { return &Workers{script: s, by: map[string]*Worker{}} }

// Play changes the script of the runs to come.
func (w *Workers) Play(s Script) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script = s
}

// Dial implements worker.Dialer.
func (w *Workers) Dial(in sandbox.Instance) (worker.Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by[in.UID] == nil {
		w.by[in.UID] = &Worker{all: w, uid: in.UID, gone: make(chan struct{})}
	}
	return w.by[in.UID], nil
}

// Gone breaks the streams of an instance that was ended.
func (w *Workers) Gone(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.by[uid]; x != nil {
		x.once.Do(func() { close(x.gone) })
	}
}

// Worker is one instance's worker.
type Worker struct {
	all  *Workers
	uid  string
	gone chan struct{}
	once sync.Once

	mu      sync.Mutex
	bound   *worker.Binding
	token   string
	running context.CancelFunc
	stopped chan struct{}
	// Stubborn makes the worker go on after a cancel.
	Stubborn bool
}

var errGone = errors.New("runstest: the sandbox is gone")

func (w *Worker) alive() error {
	select {
	case <-w.gone:
		return fault.Wrap(errGone, fault.DependencyUnavailable, "runstest")
	default:
		return nil
	}
}

// Ready implements worker.Client.
func (w *Worker) Ready(context.Context) (worker.Ready, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return worker.Ready{
		Ready: true, ProtocolVersions: []uint32{1}, HarnessID: HarnessID, AdapterVersion: AdapterVersion,
		ImageDigest: Digest, BootNonce: "nonce-" + w.uid, Bound: w.bound != nil,
	}, w.alive()
}

// Bind implements worker.Client.
func (w *Worker) Bind(_ context.Context, token string, b worker.Binding) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound != nil {
		return fault.New(fault.BindingConflict, "runstest.Bind")
	}
	w.bound, w.token = &b, token
	return w.alive()
}

// Start implements worker.Client.
func (w *Worker) Start(ctx context.Context, _ string, t worker.Turn) (worker.Stream, error) {
	return w.play(ctx, &Play{Turn: t})
}

// Resume implements worker.Client.
func (w *Worker) Resume(ctx context.Context, _ string, r worker.Resume) (worker.Stream, error) {
	i, err := event.DecodeInterrupt(r.Interrupt, event.DefaultBounds())
	if err != nil {
		return nil, fault.From(err, "runstest.Resume")
	}
	var carried []event.Carried
	for _, a := range i.ToolApprovals {
		carried = append(carried, event.Carried{ToolCallID: a.ToolCallID, Decision: r.Decision.On(i, a.ToolCallID)})
	}
	for _, id := range r.Carried {
		carried = append(carried, event.Carried{ToolCallID: id})
	}
	return w.play(ctx, &Play{Turn: worker.Turn{Envelope: r.Envelope, ConversationID: r.ConversationID}, Resume: &r}, carried...)
}

func (w *Worker) play(ctx context.Context, p *Play, carried ...event.Carried) (worker.Stream, error) {
	t := p.Turn
	w.all.mu.Lock()
	script := w.all.script
	w.all.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound == nil || t.Envelope.Generation != w.bound.Envelope.Generation {
		return nil, fault.New(fault.StaleLease, "runstest.Start")
	}
	reading, hangUp := context.WithCancel(ctx)
	life := reading
	if w.Stubborn { // it does not even notice that nobody reads
		life = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancel(life)
	frames := make(chan worker.Frame)
	s := &stream{frames: frames, gone: w.gone, cancel: hangUp, ctx: reading}
	p.Bound = *w.bound
	p.frames, p.machine = frames, event.NewMachine(t.Envelope.RunID, t.ConversationID, event.DefaultBounds(), carried...)
	p.Frame = worker.Frame{Envelope: t.Envelope, CapabilityID: jti(w.token), BootNonce: "nonce-" + w.uid}
	w.running, w.stopped = cancel, make(chan struct{})
	stopped, gone := w.stopped, w.gone
	stop := make(chan struct{})
	go func() { // a sandbox that is gone runs nothing
		select {
		case <-gone:
			cancel()
		case <-stop:
		}
	}()
	go func() {
		defer close(stop)
		defer close(stopped)
		defer close(frames)
		s.err = script(ctx, p)
	}()
	return s, nil
}

// Cancel implements worker.Client.
func (w *Worker) Cancel(_ context.Context, _ string, _ fence.Envelope, _ string) (worker.Cancelled, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.alive(); err != nil {
		return worker.Cancelled{}, err
	}
	if w.running == nil {
		return worker.Cancelled{Stopped: true}, nil
	}
	if !w.Stubborn {
		w.running()
	}
	select {
	case <-w.stopped:
		return worker.Cancelled{Active: true, Stopped: true}, nil
	default:
		return worker.Cancelled{Active: true}, nil
	}
}

// Close implements worker.Client.
func (*Worker) Close() {}

type stream struct {
	frames <-chan worker.Frame
	gone   <-chan struct{}
	cancel context.CancelFunc
	ctx    context.Context //nolint:containedctx // ends with the stream
	err    error
}

func (s *stream) Next() (worker.Frame, error) {
	select {
	case f, open := <-s.frames:
		if open {
			return f, nil
		}
		if s.err != nil {
			return worker.Frame{}, fault.From(s.err, "runstest.Next")
		}
		return worker.Frame{}, io.EOF
	case <-s.gone:
		return worker.Frame{}, fault.Wrap(errGone, fault.DependencyUnavailable, "runstest.Next")
	case <-s.ctx.Done():
		return worker.Frame{}, fault.From(s.ctx.Err(), "runstest.Next")
	}
}

func (s *stream) Close() error {
	s.cancel()
	return nil
}
