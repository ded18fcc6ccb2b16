package conformance

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// turns are fixtures of plain conversation.
func turns() []fixture {
	return []fixture{
		{name: "text", keys: []string{"stream.text", "invoke.non_streaming", "thread.durable_commit"}, run: (*bench).text},
		{name: "memory of the first turn", keys: []string{"session.multi_turn"}, run: (*bench).twoTurns},
		{name: "restored in a fresh worker", keys: []string{"thread.eviction_restore"}, run: (*bench).restored},
		{name: "evicted in mid-run", keys: []string{"runtime.eviction_recovery"}, run: (*bench).evicted},
		{name: "another conversation", keys: []string{"session.clear"}, run: (*bench).anotherConversation},
		{name: "goes on after an error", keys: []string{"runtime.restart"}, run: (*bench).goesOn},
		{name: "reasoning", keys: []string{"stream.reasoning"}, optional: true, run: (*bench).reasoning},
		{name: "usage", keys: []string{"stream.usage"}, optional: true, run: (*bench).usage},
		{
			name: "memory records", optional: true, run: (*bench).memoryRecords,
			keys: []string{"memory.semantic", "memory.episodic_reference", "memory.procedural", "memory.user_scope", "memory.shared_policy"},
		},
		{name: "nothing said is logged", keys: []string{"observability.redaction"}, run: (*bench).nothingLogged},
	}
}

func (b *bench) text() {
	w := b.worker()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	c, _ := w.client(b.stand.Envelope())
	ready, err := c.Ready(ctx)
	b.must(err)
	want := w.expect
	want.Ready = true
	if ready.Info != want || !slices.Equal(ready.ProtocolVersions, []uint32{1}) {
		b.Errorf("an unbound worker says %+v", ready)
	}
	if b.brokers.ModelCalls() != 0 {
		b.Error("ready called the model")
	}
	b.only("invoke.non_streaming", harness.Emulated) // a worker has no other answer than a stream
	got := w.turn(Intent{Say: "Hello there, this is a text of some words."})
	b.wantFinished(got)
	b.wantText(got, "Hello there, this is a text of some words.")
	started, ok := got[0].Data.(event.RunStarted)
	if !ok || started.HarnessID != w.expect.HarnessID || started.AdapterVersion != w.expect.AdapterVersion {
		b.Errorf("the run began with %#v", got[0].Data)
	}
	if n := len(of[event.TextDelta](got)); n < 2 {
		b.Errorf("the text came in %d pieces", n)
	}
	if f := of[event.RunFinished](got)[0]; f.ThreadState != nil || f.StopReason == "" {
		b.Errorf("the run finished as %+v", f)
	}
	b.wantRevision(1)
}

func (b *bench) twoTurns() {
	w := b.worker()
	b.wantFinished(w.turn(Intent{Say: "The password is swordfish."}))
	got := w.turn(Intent{Recall: true})
	b.wantFinished(got)
	b.wantText(got, "swordfish")
	b.wantRevision(2)
}

func (b *bench) restored() {
	b.wantFinished(b.worker().turn(Intent{Say: "The password is swordfish."}))
	got := b.worker().turn(Intent{Recall: true})
	b.wantFinished(got)
	b.wantText(got, "swordfish")
	b.wantRevision(2)
}

// evicted lets a worker go away in mid-run: what it had committed before stands,
// and nothing of the run that was lost.
func (b *bench) evicted() {
	first := b.worker()
	b.wantFinished(first.turn(Intent{Say: "The password is swordfish."}))
	lost := first.start(Intent{Say: "This is lost.", SleepMS: 60_000})
	lost.untilText()
	lost.leave()
	if err := lost.stream(); err == nil {
		b.Error("the stream of a worker that went away ended in order")
	}
	lost.conclude()
	got := b.worker().turn(Intent{Recall: true})
	b.wantFinished(got)
	b.wantText(got, "swordfish")
	b.wantRevision(2)
}

// anotherConversation has another binding, in a fresh worker: nothing of the
// first is in it.
func (b *bench) anotherConversation() {
	secret := "canary-" + rand.Text()
	b.wantFinished(b.worker().turn(Intent{Say: "The password is " + secret + "."}))
	first := b.stand.BindingID
	b.newBinding()
	got := b.worker().turn(Intent{Recall: true})
	b.wantFinished(got)
	if strings.Contains(got.text(), secret) {
		b.Error("another conversation remembers it")
	}
	if b.stand.BindingID == first || len(got.text()) == 0 {
		b.Error("nothing was tried")
	}
	b.wantRevision(1)
}

// goesOn has an error, which leaves the worker and the conversation as they were.
func (b *bench) goesOn() {
	w := b.worker()
	b.wantFinished(w.turn(Intent{Say: "The password is swordfish."}))
	failed := w.turn(Intent{FailStatus: 400})
	if _, ok := failed.terminal().(event.RunError); !ok {
		b.Fatalf("the run ended by %#v", failed.terminal())
	}
	b.wantRevision(1)
	got := w.turn(Intent{Recall: true})
	b.wantFinished(got)
	b.wantText(got, "swordfish")
	b.wantRevision(2)
}

func (b *bench) reasoning() {
	got := b.worker().turn(Intent{Think: "Let me see.", Say: "Done."})
	b.wantFinished(got)
	b.wantText(got, "Done.")
	var thought strings.Builder
	for _, d := range of[event.ReasoningDelta](got) {
		thought.WriteString(d.Delta)
	}
	if thought.String() != "Let me see." {
		b.Errorf("it thought %q", thought.String())
	}
}

func (b *bench) usage() {
	defer func() {
		if b.brokers.ModelCalls() == 0 { // nobody has counted
			b.only("stream.usage", harness.Emulated)
		}
	}()
	got := b.worker().turn(Intent{Usage: [2]uint64{11, 7}, Say: "Done."})
	b.wantFinished(got)
	all := of[event.UsageUpdated](got)
	if len(all) == 0 {
		b.Fatal("no usage was told")
	}
	last := all[len(all)-1]
	if !last.Final || last.InputTokens == nil || last.OutputTokens == nil || *last.InputTokens != 11 || *last.OutputTokens != 7 {
		b.Errorf("the last usage is %+v", last)
	}
}

// memoryRecords keeps what outlives the conversation, of each kind, for the user.
// What the users of an agent share can be read, and written by no harness.
func (b *bench) memoryRecords() {
	b.brokers.Remember(harness.MemoryAgent, "house", "no smoking")
	records := []Record{
		{Key: "colour", Text: "ultramarine"}, {Key: "tea", Kind: "procedural", Text: "milk comes first"}, {Key: "monday", Kind: "episodic_reference", Text: "run_of_monday"},
	}
	shared := Record{Scope: harness.MemoryAgent, Key: "house", Text: "smoking", Revision: 1}
	got := b.worker().turn(Intent{Put: append(slices.Clone(records), shared), Then: "Kept."})
	b.wantFinished(got)
	b.wantText(got, string(fault.MemoryScopeDenied), "Kept.")
	for _, r := range append(records, Record{Scope: harness.MemoryAgent, Key: "house", Text: "no smoking"}) {
		text, kind := b.brokers.Remembered(r.In(), r.Key)
		if text != r.Text || kind != "KIND_"+strings.ToUpper(r.Of()) {
			b.Errorf("of %s %q is remembered, %s", r.Key, text, kind)
		}
	}
	got = b.worker().turn(Intent{Get: append(slices.Clone(records), shared), Then: "Read."})
	b.wantFinished(got)
	b.wantText(got, "ultramarine", "milk comes first", "procedural", "run_of_monday", "episodic_reference", "no smoking", "Read.")
	b.only("memory.shared_policy", harness.Emulated) // it is the memory service that refused
}

// nothingLogged: what people say and tools answer stands in no log.
func (b *bench) nothingLogged() {
	secret := "canary" + rand.Text()
	w := b.worker()
	b.wantFinished(w.turn(Intent{Say: "It is " + secret + ".", Calls: []Call{{echo, `{"text":"` + secret + `"}`}}, Then: "Done."}))
	w.turn(Intent{Say: "It is " + secret + ".", Cut: true})
	w.turn(Intent{Calls: []Call{{failTool, `{"text":"` + secret + `"}`}, {denied, `{"text":"` + secret + `"}`}}})
	if b.logs.has(secret) {
		b.Error("what was said is in the log")
	}
	if !b.logs.has("run failed") {
		b.Error("nothing was logged at all")
	}
}
