package conformance

import (
	"context"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// ends are fixtures of runs that are ended from outside.
func ends() []fixture {
	return []fixture{
		{name: "cancel before the start", run: (*bench).cancelBefore},
		{name: "cancel in text", keys: []string{"runtime.cancel"}, run: (*bench).cancelInText},
		{name: "cancel in a tool", keys: []string{"tool.cancellation"}, run: (*bench).cancelInTool},
		{name: "cancel after the end", run: (*bench).cancelAfter},
		{name: "deadline", run: (*bench).deadline},
		{name: "reader goes away", run: (*bench).readerGone},
		{name: "shutdown in mid-run", keys: []string{"runtime.bounded_cleanup"}, run: (*bench).shutdownInRun},
		{name: "start twice", run: (*bench).startTwice},
	}
}

func (b *bench) cancelBefore() {
	w := b.worker()
	e := b.nextRun()
	w.bind(e, nil)
	r := w.newRun(e, nil)
	if c := r.cancel(event.CancelledByClient); c.Active || !c.Stopped {
		b.Errorf("the cancel was answered with %+v", c)
	}
	got := w.startRun(e, b.setup.Phrase(Intent{Say: "never"})).end()
	c := b.wantCancelled(got, event.CancelledByClient)
	if got.types() != "run.started run.cancelled" || c.SideEffectStatus != event.SideEffectsNone || b.brokers.ModelCalls() != 0 {
		b.Errorf("events: %s, %+v", got.types(), c)
	}
	b.wantRevision(0)
	b.wantFinished(w.turn(Intent{Say: "The next one runs."}))
}

func (b *bench) cancelInText() {
	w := b.worker()
	r := w.start(Intent{Say: "It has begun.", SleepMS: 60_000, Then: "never"})
	r.untilText()
	began := time.Now()
	r.cancel(event.CancelledByClient)
	r.cancel(event.CancelledByShutdown) // the first reason stands
	got := r.end()
	if c := b.wantCancelled(got, event.CancelledByClient); c.SideEffectStatus != event.SideEffectsNone {
		b.Errorf("side effects are said to be %s", c.SideEffectStatus)
	}
	if took := time.Since(began); took > 15*time.Second {
		b.Errorf("it took %s", took)
	}
	if c := r.cancel(event.CancelledByClient); c.Active || !c.Stopped {
		b.Errorf("afterwards the cancel is answered with %+v", c)
	}
	b.wantRevision(0)
	b.wantFinished(w.turn(Intent{Say: "The next one runs."}))
}

func (b *bench) cancelInTool() {
	w := b.worker()
	r := w.start(Intent{Calls: []Call{{slow, `{}`}}, Then: "never"})
	select {
	case <-b.brokers.Slow():
	case <-time.After(patience):
		b.Fatalf("the tool was not called: %s", r.all().types())
	}
	r.cancel(event.CancelledByClient)
	got := r.end()
	if c := b.wantCancelled(got, event.CancelledByClient); c.SideEffectStatus != event.SideEffectsPossible {
		b.Errorf("side effects are said to be %s", c.SideEffectStatus)
	}
	if n := len(of[event.ToolFinished](got)); n != 0 {
		b.Errorf("events: %s", got.types())
	}
	b.wantActed(slow + ` {}`)
	b.wantRevision(0)
}

func (b *bench) cancelAfter() {
	w := b.worker()
	r := w.start(Intent{Say: "Done."})
	b.wantFinished(r.end())
	if c := r.cancel(event.CancelledByClient); c.Active || !c.Stopped {
		b.Errorf("the cancel was answered with %+v", c)
	}
	b.wantFinished(w.turn(Intent{Say: "The next one runs."}))
	b.wantRevision(2)
}

func (b *bench) deadline() {
	w := b.worker()
	e := b.nextRun()
	w.bind(e, nil)
	e.Deadline = time.Now().Add(3 * time.Second)
	got := w.startRun(e, b.setup.Phrase(Intent{Say: "It has begun.", SleepMS: 60_000})).end()
	b.wantCancelled(got, event.CancelledByDeadline)
	if late := time.Since(e.Deadline); late > 10*time.Second {
		b.Errorf("it ended %s after its deadline", late)
	}
	b.wantRevision(0)
}

// readerGone: a run ends with the stream that carries it.
func (b *bench) readerGone() {
	w := b.worker()
	e := b.nextRun()
	message := b.setup.Phrase(Intent{Say: "It has begun.", SleepMS: 60_000})
	r := w.startRun(e, message)
	r.untilText()
	r.leave()
	if err := r.stream(); err == nil {
		b.Error("a stream that was left ended in order")
	}
	// Whoever asks again learns how it ended.
	var again events
	c, _ := w.client(e)
	req := workerclient.Start{Envelope: e, ConversationID: conversation, Message: message, Tokens: r.tokens}
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for {
		err := c.Start(ctx, req, func(x workerclient.Received) { again = append(again, x.Event) })
		if err == nil {
			break
		}
		if !fault.Is(err, fault.AlreadyRunning) {
			b.Fatal(err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			b.Fatal("the run goes on without a reader")
		}
	}
	b.wantCancelled(again, event.CancelledByDisconnect)
	r.conclude()
	b.wantFinished(w.turn(Intent{Say: "The next one runs."}))
}

func (b *bench) shutdownInRun() {
	w := b.worker()
	r := w.start(Intent{Say: "It has begun.", SleepMS: 60_000})
	r.untilText()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	c, _ := w.client(b.stand.Envelope())
	began := time.Now()
	b.must(c.Shutdown(ctx, b.stand.Envelope()))
	if took := time.Since(began); took > 10*time.Second {
		b.Errorf("it took %s", took)
	}
	b.wantCancelled(r.end(), event.CancelledByShutdown)
	if i := w.session.Ready(ctx); i.Ready {
		b.Error("it is ready after its shutdown")
	}
	b.must(w.session.Shutdown(ctx)) // a second one is harmless
}

// startTwice: the same run again is that run and never a second one.
func (b *bench) startTwice() {
	w := b.worker()
	e := b.nextRun()
	message := b.setup.Phrase(Intent{Say: "Once.", SleepMS: 4000, Then: "And again."})
	r := w.startRun(e, message)
	r.untilText()
	c, _ := w.client(e)
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	var second events
	again := func(text string) error {
		req := workerclient.Start{Envelope: e, ConversationID: conversation, Message: text, Tokens: r.tokens}
		return c.Start(ctx, req, func(x workerclient.Received) { second = append(second, x.Event) })
	}
	b.wantCode(again(message), fault.AlreadyRunning)
	b.wantCode(again(message+" "), fault.IdempotencyConflict)
	first := r.end()
	b.wantFinished(first)
	b.must(again(message))
	if len(second) != 1 || second[0].Sequence != first[len(first)-1].Sequence || second.terminal() != first.terminal() {
		b.Errorf("the same again gave %+v", second)
	}
	b.wantCode(again(message+" "), fault.IdempotencyConflict)
	b.wantRevision(1)
}
