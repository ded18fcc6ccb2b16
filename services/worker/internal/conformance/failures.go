package conformance

import (
	"sync/atomic"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// failures are fixtures of what goes wrong around a harness.
func failures() []fixture {
	return []fixture{
		{name: "model error", optional: true, run: (*bench).modelError},
		{name: "truncated stream", optional: true, run: (*bench).truncated},
		{name: "state commit conflict", run: (*bench).commitConflict},
		{name: "state commit uncertain", run: (*bench).commitUncertain},
		{name: "lost answer of a commit", run: (*bench).commitAnswerLost},
		{name: "state cannot be loaded", run: (*bench).noState},
	}
}

func (b *bench) modelError() {
	w := b.worker()
	got := w.turn(Intent{FailStatus: 400})
	b.wantError(got, fault.ModelFailed, fault.ModelUnavailable, fault.InvalidRequest)
	b.wantRevision(0)
	b.wantFinished(w.turn(Intent{Say: "The next one runs."}))
}

// truncated: half an answer is none.
func (b *bench) truncated() {
	w := b.worker()
	got := w.turn(Intent{Say: "This is only half of", Cut: true})
	b.wantError(got, fault.ModelFailed, fault.ModelUnavailable)
	b.wantRevision(0)
	b.wantFinished(w.turn(Intent{Say: "The next one runs."}))
}

func (b *bench) commitConflict() {
	b.refuseCommit(fault.RevisionConflict)
	got := b.worker().turn(Intent{Say: "Done."})
	b.wantError(got, fault.RevisionConflict)
	b.wantRevision(0)
}

func (b *bench) commitUncertain() {
	b.refuseCommit(fault.ThreadDurabilityUncertain)
	got := b.worker().turn(Intent{Say: "Done."})
	b.wantError(got, fault.ThreadDurabilityUncertain)
	b.wantRevision(0)
}

func (b *bench) refuseCommit(code fault.Code) {
	b.brokers.Refuse(func(procedure string) error {
		if procedure == "CommitHead" {
			return fault.New(code, "conformance")
		}
		return nil
	})
}

// commitAnswerLost: a commit whose answers are lost happened once, and is known
// to have happened.
func (b *bench) commitAnswerLost() {
	var left atomic.Int32
	left.Store(2)
	b.brokers.Lose(func(procedure string) bool { return procedure == "CommitHead" && left.Add(-1) >= 0 })
	got := b.worker().turn(Intent{Say: "Done."})
	b.wantFinished(got)
	b.wantRevision(1)
}

func (b *bench) noState() {
	b.brokers.Refuse(func(procedure string) error {
		if procedure == "LoadHead" {
			return fault.New(fault.PersistenceFailed, "conformance")
		}
		return nil
	})
	w := b.worker()
	got := w.turn(Intent{Say: "Done."})
	b.wantError(got, fault.PersistenceFailed)
	if b.brokers.ModelCalls() != 0 || len(of[event.TextDelta](got)) != 0 {
		b.Errorf("it worked without its state: %s", got.types())
	}
	b.brokers.Refuse(nil)
	b.wantFinished(w.turn(Intent{Say: "The next one runs."}))
}
