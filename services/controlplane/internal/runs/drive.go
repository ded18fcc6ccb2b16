package runs

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/lease"
	"cofferdam.dev/services/controlplane/internal/worker"
)

// concludeTimeout bounds what happens after a run's time is over.
const concludeTimeout = 30 * time.Second

// driver drives one run of this replica from its start to its conclusion.
type driver struct {
	s     *Service
	agent agents.Agent
	req   StartRequest
	// resume is what the run carries out, where it is not a new turn.
	resume *resumption
	env    fence.Envelope
	grant  fence.Grant
	log    *journal
	held   *lease.Held
	// files of the message, and uploads for new ones, as the worker gets them.
	files   []worker.File
	uploads []worker.Upload
	// stopped is set once the worker's stream ended with a terminal.
	stopped bool
	// terminal is the worker's own terminal, as far as it is believed.
	terminal event.Data
	// stream is what may still come after it, until it is closed.
	stream *ahead
}

// launch drives a run in a goroutine that the service waits for. The run outlives the
// request that asked for it, and belongs to its trace: that of the call which delegates,
// where there is one.
func (s *Service) launch(of trace.SpanContext, rec binding.Record, agent agents.Agent, req StartRequest, resume *resumption) {
	run := *rec.Run
	ctx, cancel := context.WithDeadline(trace.ContextWithSpanContext(s.stop, of), run.Deadline)
	if !s.hub.drive(run.ID, cancel) {
		cancel()
		return
	}
	d := &driver{
		s: s, agent: agent, req: req, resume: resume,
		env: fence.Envelope{
			BindingID: rec.ID, Epoch: rec.Epoch, Generation: rec.Generation, RunID: run.ID,
			RequestID: run.RequestID, IdempotencyKey: "run", Deadline: run.Deadline,
		},
		log: newJournal(s, rec, run),
	}
	s.drainingMu.Lock()
	draining := s.draining
	if !draining {
		s.drivers.Go(func() {
			defer s.hub.done(run.ID)
			defer cancel()
			d.drive(ctx, rec)
		})
	}
	s.drainingMu.Unlock()
	if draining {
		cancel()
		s.hub.done(run.ID)
		s.notDriven(rec)
	}
}

// notDriven decides how a run ends that was committed when nothing was driven here
// any more: as those that this replica drove. Another replica, or the next start of
// this one, concludes it; without the decision it would have to call it lost.
func (s *Service) notDriven(rec binding.Record) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.CancelGrace)
	defer cancel()
	if err := s.decideCancel(ctx, rec, event.CancelledByShutdown); err != nil {
		s.cfg.Logger.WarnContext(ctx, "a run that was started in the last moment is not ended", "run_id", rec.Run.ID, "error", err.Error())
	}
}

// drive has no error: whatever happens becomes how the run ends.
func (d *driver) drive(ctx context.Context, rec binding.Record) {
	err := patient(ctx, func() (err error) {
		d.grant, err = d.s.cfg.Guard.Admit(ctx, d.env)
		return err
	})
	if err != nil {
		d.s.cfg.Logger.WarnContext(ctx, "run could not be driven", "error", err.Error())
		if d.s.stop.Err() != nil {
			d.s.notDriven(rec) //nolint:contextcheck // its context is that of the service, which is over
		}
		return
	}
	// The owner beats until the run is concluded: it drives it that long.
	defer d.beat(context.WithoutCancel(ctx), d.grant)()
	err = d.turn(ctx)

	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeTimeout)
	defer cancel()
	d.end(ended, d.wish(ctx, err))
	d.drain(ended)
	if d.held != nil {
		d.held.Client.Close()
	}
	if d.req.DelegatedBy != nil {
		d.s.dismiss(ended, d.env.BindingID)
	}
}

// turn runs the turn on a worker. nil means that the worker sent a terminal.
func (d *driver) turn(ctx context.Context) error {
	held, err := d.s.cfg.Leases.Acquire(ctx, lease.Request{Agent: d.agent, Envelope: d.env, Handles: d.putFiles})
	d.req.Files = nil // they are in the file broker now, or nobody wants them any more
	if err != nil {
		return err
	}
	d.held, d.grant = &held, held.Grant
	d.env = held.Grant.Envelope()
	streaming, hangUp := context.WithCancel(ctx)
	begun, err := d.begin(streaming, held)
	if err != nil {
		hangUp()
		return err
	}
	stream := readAhead(begun, hangUp)
	err = d.pump(ctx, stream)
	if err == nil {
		d.stream = stream
		return nil
	}
	return errors.Join(err, ignoreClosed(stream.Close()))
}

// begin gives the run to the worker.
func (d *driver) begin(ctx context.Context, held lease.Held) (worker.Stream, error) {
	if d.resume != nil {
		return held.Client.Resume(ctx, held.Token.Token, d.resume.request(d.env, d.uploads, held.CallTokens))
	}
	return held.Client.Start(ctx, held.Token.Token, worker.Turn{
		Envelope: d.env, ConversationID: d.req.ConversationID, Message: d.req.Message,
		Files: d.files, Uploads: d.uploads, ClientContext: d.req.ClientContext, Tokens: held.CallTokens,
	})
}

// putFiles puts the files of the message into the file broker, and makes handles
// for those that the run may write, for the generation of the envelope.
func (d *driver) putFiles(ctx context.Context, env fence.Envelope) (handles []string, err error) {
	d.files = nil
	d.uploads = nil
	if n := d.agent.Limits.MaxUploads; n > 0 {
		d.uploads, err = d.s.cfg.Files.Uploads(ctx, env, n)
	}
	if err != nil {
		// The harness sees an error of its files, and the rest goes on.
		d.s.cfg.Logger.WarnContext(ctx, "no handles for uploads; the run starts without them", "error", err.Error())
	}
	for _, u := range d.uploads {
		handles = append(handles, u.Handle)
	}
	for _, f := range d.req.Files {
		put, err := d.give(ctx, env, f)
		if err != nil {
			return nil, err
		}
		d.files, handles = append(d.files, put), append(handles, put.Handle)
	}
	return handles, nil
}

// give makes a handle for a file of the message, and stores it before that where it
// came with the message.
func (d *driver) give(ctx context.Context, env fence.Envelope, f InlineFile) (worker.File, error) {
	if f.ID != "" {
		return d.s.cfg.Files.Handle(ctx, env, d.req.stored[f.ID])
	}
	return d.s.cfg.Files.Put(ctx, env, f)
}

// pump takes the worker's events into the log until its terminal. One batch is
// in flight at a time, and what comes meanwhile is the next one, within bounds: a
// slow store holds the worker's stream back.
func (d *driver) pump(ctx context.Context, stream *ahead) error {
	for {
		g, err := d.gather(ctx, stream)
		// What was lawful before an error is committed all the same.
		if cerr := d.log.flush(ctx, d.grant); cerr != nil {
			if reason := d.lateness(ctx, cerr); reason != "" {
				d.drop(ctx, g.events, reason)
			}
			return cerr
		}
		if err != nil {
			return err
		}
		if g.terminal != nil {
			d.drop(ctx, g.late, lateTerminal)
			d.terminal, d.stopped = g.terminal, true
			return nil
		}
	}
}

// gathered is what came with some frames: how many events were judged, the terminal,
// and how many were behind it.
type gathered struct {
	events   int
	terminal event.Data
	late     int
}

// gather waits for a frame, and judges it and those that are there already, until
// the batch is full.
func (d *driver) gather(ctx context.Context, stream *ahead) (g gathered, err error) {
	frame, err := stream.Next()
	if errors.Is(err, io.EOF) {
		return g, fault.New(fault.Protocol, "runs.pump", fault.Detail("the stream ended without a terminal"))
	}
	for more := err == nil; more; frame, more = stream.More() {
		if err := d.authentic(frame); err != nil {
			d.drop(ctx, len(frame.Events), lateForeign)
			return g, err
		}
		if g.terminal, g.late, err = d.log.judge(frame.Events); err != nil {
			if reason := d.lateness(ctx, err); reason != "" {
				d.drop(ctx, len(frame.Events), reason)
			}
			return g, err
		}
		g.events += len(frame.Events)
		if g.terminal != nil || d.log.full() {
			break
		}
	}
	return g, err
}

// authentic compares a frame with what is committed: the worker repeats the
// envelope, its boot nonce and the capability that bound it in every frame.
func (d *driver) authentic(f worker.Frame) error {
	l := d.held.Record.Lease
	same := f.Envelope.BindingID == d.env.BindingID && f.Envelope.Epoch == d.env.Epoch &&
		f.Envelope.Generation == d.env.Generation && f.Envelope.RunID == d.env.RunID
	if !same || f.BootNonce != l.BootNonce || f.CapabilityID != l.BoundBy {
		d.s.refusals.note(d.env.BindingID, "event", f.Envelope.Generation)
		return fault.New(fault.StaleLease, "runs.authentic")
	}
	return nil
}

// drop counts events that are not taken. It is called also where there are none.
func (d *driver) drop(ctx context.Context, n int, reason string) {
	if n == 0 {
		return
	}
	d.s.late.Add(ctx, int64(n), metric.WithAttributes(attribute.String("reason", reason)))
}

// beat shows other replicas that this one drives the run, and finds out that
// another one cancelled it. The returned function ends it and waits.
func (d *driver) beat(ctx context.Context, grant fence.Grant) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(d.s.cfg.BeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				grant = d.s.beatOnce(ctx, grant)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// beatOnce has no error: a store that is away makes nobody lost. It gives the
// grant for the next beat, which is another one once a run that has done nothing
// was carried over. A grant outlives the run's deadline; a new one cannot be had
// then.
func (s *Service) beatOnce(ctx context.Context, grant fence.Grant) fence.Grant {
	env := grant.Envelope()
	rec, err := s.cfg.Writer.Backend().Load(ctx, env.BindingID)
	if err != nil {
		return grant
	}
	if rec.Run == nil || rec.Run.ID != env.RunID {
		s.hub.wake(env.RunID)
		return grant
	}
	if rec.Run.End.Kind == binding.EndCancelling {
		s.hub.wake(env.RunID)
	}
	if env.Generation != rec.Generation {
		if grant, err = s.again(ctx, grant, rec.Generation); err != nil {
			return grant
		}
	}
	if err := s.cfg.Writer.Beat(ctx, grant, s.cfg.Owner); err != nil {
		s.cfg.Logger.WarnContext(ctx, "owner's beat was not committed", "error", err.Error())
	}
	return grant
}

// again asks the fence for a run that was carried over to another generation.
// With an error the old grant is given back.
func (s *Service) again(ctx context.Context, old fence.Grant, generation uint32) (fence.Grant, error) {
	env := old.Envelope()
	env.Generation = generation
	g, err := s.cfg.Guard.Admit(ctx, env)
	if err != nil {
		return old, err
	}
	return g, nil
}

// patient repeats what failed because the store did not answer, until ctx ends:
// a store that is away holds a run back and does not end it.
func patient(ctx context.Context, do func() error) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := do()
		if err == nil || !fault.Is(err, fault.DependencyUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || fault.Is(err, fault.Cancelled) {
		return nil
	}
	return err
}
