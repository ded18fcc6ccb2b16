package conformance

import (
	"context"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/workerclient"
)

// leases are fixtures of what a worker is bound to.
func leases() []fixture {
	return []fixture{
		{name: "bind twice", run: (*bench).bindTwice},
		{name: "bind of another worker", run: (*bench).workerMismatch},
		{name: "unknown option", keys: []string{"subagents.mixed_harness"}, run: (*bench).unknownOption},
		{name: "replaced in mid-run", keys: []string{"runtime.lease_fencing"}, run: (*bench).replaced},
	}
}

func (b *bench) bindTwice() {
	w := b.worker()
	e := b.nextRun()
	c, jti := w.client(e)
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	w.by = jti
	for range 2 {
		again := e
		again.RequestID += "x"
		b.must(c.Bind(ctx, w.bindRequest(again, nil)))
	}
	other := w.bindRequest(e, nil)
	other.Construction.Prompt = "You are somebody else."
	b.wantCode(c.Bind(ctx, other), fault.BindingConflict)
	w.bound = true
	b.wantFinished(w.startRun(e, b.setup.Phrase(Intent{Say: "Done."})).end())
}

func (b *bench) workerMismatch() {
	w := b.worker()
	e := b.nextRun()
	c, _ := w.client(e)
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	for name, change := range map[string]func(*workerclient.Bind){
		"harness": func(r *workerclient.Bind) { r.Expected.HarnessID = "another" },
		"version": func(r *workerclient.Bind) { r.Expected.AdapterVersion += ".1" },
		"digest": func(r *workerclient.Bind) {
			r.Expected.ImageDigest = strings.Replace(imageDigest, "0", "1", 1)
		},
		"boot": func(r *workerclient.Bind) { r.Expected.BootNonce += "x" },
	} {
		req := w.bindRequest(e, nil)
		change(&req)
		if err := c.Bind(ctx, req); !fault.Is(err, fault.WorkerMismatch) {
			b.Errorf("another %s: %v", name, err)
		}
	}
	b.wantFinished(w.startRun(e, b.setup.Phrase(Intent{Say: "Done."})).end())
}

func (b *bench) unknownOption() {
	w := b.worker()
	e := b.nextRun()
	c, _ := w.client(e)
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	req := w.bindRequest(e, nil)
	req.Construction.Options = []byte(`{"no_such_option":true}`)
	b.wantCode(c.Bind(ctx, req), fault.HarnessOptionsInvalid)
	// An agent can have subagents of another harness only where its options can say
	// so. Whoever takes this has to be tried with one.
	req.Construction.Options = []byte(`{"subagents":[{"name":"other","description":"Another.","prompt":"You are another.","tools":[],"harness":"scripted"}]}`)
	b.wantCode(c.Bind(ctx, req), fault.HarnessOptionsInvalid)
	b.only("subagents.mixed_harness", harness.Unsupported)
	b.wantFinished(w.startRun(e, b.setup.Phrase(Intent{Say: "Done."})).end())
}

// replaced: a worker whose lease was taken over has no effect any more.
func (b *bench) replaced() {
	w := b.worker()
	r := w.start(Intent{Say: "It has begun.", SleepMS: 3000, Calls: []Call{{echo, `{"text":"late"}`}}, Then: "never"})
	r.untilText()
	b.stand.Replace(b.T)
	if err := r.stream(); err != nil {
		b.Fatal(err)
	}
	b.wantError(r.all(), fault.StaleLease)
	b.wantActed()
	b.wantRevision(0)
	for _, e := range r.all() {
		if e.Type() == event.TypeToolFinished {
			b.Error("a call finished after the lease was taken over")
		}
	}
}
