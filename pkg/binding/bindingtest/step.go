package bindingtest

import (
	"errors"
	"fmt"
	"slices"

	"cofferdam.dev/pkg/binding"
)

// step checks one change of a record against what holds for every change,
// whichever write made it: S1, S3, S4 and S5 of the contract's model, without
// the code that is tested.
func step(before, after binding.Record) error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	cleared := after.Epoch != before.Epoch
	bad(after.Epoch != before.Epoch && after.Epoch != before.Epoch+1, "epoch %d to %d", before.Epoch, after.Epoch)
	bad(after.Generation != before.Generation && after.Generation != before.Generation+1, "generation %d to %d", before.Generation, after.Generation)
	bad(after.Revision < before.Revision, "revision falls from %d to %d", before.Revision, after.Revision)
	bad(cleared && after.Generation == before.Generation, "epoch rises without the generation")
	bad(cleared && (after.Head != binding.Head{} || after.Interrupt != nil || after.Run != nil), "something of the old epoch is left: %+v", after)
	bad(countRuns(after) > 1, "%d runs are ending", countRuns(after))

	for _, was := range placed(before) {
		errs = append(errs, runStep(before, after, was)...)
	}
	if after.Run != nil && place(before, after.Run.ID) == nil {
		bad(before.Run != nil || countRuns(before) > 0, "a run starts while another one is there")
		bad(after.Revision != before.Revision+1, "a start leaves the revision")
		bad(after.Run.EventHead != 0 || after.Run.Admissions != 0 || !after.Run.End.Open(), "a run starts that has done something: %+v", after.Run)
	}
	if claim(before) != claim(after) {
		bad(before.Lease != nil && !slices.ContainsFunc(after.Ending, func(e binding.Ending) bool {
			return e.Lease != nil && e.Lease.ClaimName == before.Lease.ClaimName && e.Generation == before.Generation
		}), "a lease vanishes")
		bad(after.Generation == before.Generation, "a lease changes without the generation")
	}
	return errors.Join(append(errs, headStep(before, after)...)...)
}

func claim(r binding.Record) string {
	if r.Lease == nil {
		return ""
	}
	return r.Lease.ClaimName
}

// headStep checks head, interrupt and what they have to do with the run's end.
func headStep(before, after binding.Record) []error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	moved := after.Head != before.Head && after.Epoch == before.Epoch
	if moved {
		bad(after.Head.Revision != before.Head.Revision+1, "head revision %d to %d", before.Head.Revision, after.Head.Revision)
		bad(before.Run == nil || after.Run == nil || after.Head.RunID != after.Run.ID, "a head without its run")
		if before.Run != nil && after.Run != nil {
			from, to := before.Run.End.Kind, after.Run.End.Kind
			bad(from != binding.EndOpen && from != binding.EndCancelling, "a head under the end %q", from)
			bad(from == binding.EndCancelling && to != from, "a head changes the end %q", from)
			bad(from == binding.EndCancelling && after.Interrupt != nil, "a cancelled run leaves an interrupt")
			bad(from == binding.EndOpen && to != binding.EndSuccess && to != binding.EndInterrupted, "a head leaves the end %q", to)
			bad((to == binding.EndInterrupted) != (after.Interrupt != nil), "end %q with interrupt %v", to, after.Interrupt)
		}
	}
	if before.Run != nil && after.Run != nil && before.Run.End.Open() && !moved {
		k := after.Run.End.Kind
		bad(k == binding.EndSuccess || k == binding.EndInterrupted, "the run ends as %q without a head", k)
	}
	if after.Interrupt != nil && (before.Interrupt == nil || *after.Interrupt != *before.Interrupt) {
		bad(!moved || after.Interrupt.Revision != after.Head.Revision || after.Interrupt.RunID != after.Head.RunID, "an interrupt without its head")
	}
	if r := after.Resumed; r != nil && (before.Resumed == nil || *r != *before.Resumed) {
		i := before.Interrupt
		bad(i == nil || i.ID != r.InterruptID || i.Revision != r.Revision, "resumed what was not pending")
		bad(after.Interrupt != nil, "a resumed interrupt stays")
		bad(after.Run == nil || after.Run.ID != r.RunID, "a resume without its run")
	}
	return errs
}

// at is a run and where it stands: entry is nil for the active run.
type at struct {
	run   *binding.Run
	entry *binding.Ending
}

func placed(r binding.Record) []at {
	var out []at
	if r.Run != nil {
		out = append(out, at{run: r.Run})
	}
	for i := range r.Ending {
		if r.Ending[i].Run != nil {
			out = append(out, at{run: r.Ending[i].Run, entry: &r.Ending[i]})
		}
	}
	return out
}

func place(r binding.Record, runID string) *at {
	for _, a := range placed(r) {
		if a.run.ID == runID {
			return &a
		}
	}
	return nil
}

func countRuns(r binding.Record) int {
	n := 0
	for _, e := range r.Ending {
		if e.Run != nil {
			n++
		}
	}
	return n
}

// runStep checks what became of one run.
func runStep(before, after binding.Record, was at) []error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("run %s: "+format, append([]any{was.run.ID}, args...)...))
		}
	}
	is := place(after, was.run.ID)
	if is == nil {
		bad(was.entry == nil, "it vanishes from run")
		bad(was.entry != nil && (!was.entry.Terminal || len(was.run.Tail) > 0), "it leaves ending before it is concluded")
		return errs
	}
	old, now := was.run, is.run
	bad(was.entry != nil && is.entry == nil, "it comes back from ending")
	bad(!old.End.Open() && now.End != old.End, "its end %v becomes %v", old.End, now.End)
	bad(now.EventHead < old.EventHead, "its event head falls from %d to %d", old.EventHead, now.EventHead)
	bad(now.Admissions < old.Admissions, "its admissions fall")
	bad(old.Owner != now.Owner || old.Nonce != now.Nonce || old.ContentDigest != now.ContentDigest || !old.Deadline.Equal(now.Deadline), "it changes")
	bad(len(now.Admitted) > binding.MaxAdmitted, "%d effects are admitted", len(now.Admitted))
	for _, k := range now.Admitted {
		joined := !slices.Contains(old.Admitted, k)
		bad(joined && (!old.End.Open() || is.entry != nil), "%q is admitted under the end %v", k, old.End)
		bad(joined && now.Admissions == old.Admissions, "an admission is not counted")
	}
	errs = append(errs, logStep(old, now)...)

	leaves := was.entry == nil && is.entry != nil
	grew := now.EventHead > old.EventHead
	bad(is.entry != nil && now.End.Open(), "it is ending with an open end")
	bad(is.entry == nil && grew && !old.End.Open(), "it takes events after its end")
	bad(is.entry != nil && grew && !is.entry.Terminal, "it takes events in ending without a terminal")
	bad(was.entry != nil && was.entry.Terminal && (grew || !is.entry.Terminal), "something follows its terminal")
	bad(leaves && (is.entry.Epoch != before.Epoch || is.entry.Generation != before.Generation), "it is ending under another lease")
	bad(leaves && after.Revision != before.Revision+1, "it leaves and the revision stays")
	bad(is.entry == nil && after.Epoch != before.Epoch, "it is carried over to another epoch")
	bad(is.entry == nil && after.Generation != before.Generation && (old.EventHead > 0 || old.Admissions > 0 || !old.End.Open()),
		"it is carried over although it has done something")
	return errs
}

// logStep checks the tail: contiguous up to the event head, never rewritten.
func logStep(old, now *binding.Run) []error {
	var errs []error
	next := now.TailFirst()
	size := 0
	for _, b := range now.Tail {
		if b.First != next || len(b.Events) == 0 {
			errs = append(errs, fmt.Errorf("run %s: the tail has %d after %d", now.ID, b.First, next))
		}
		next = b.Next()
		size += b.Bytes()
	}
	if next != now.EventHead {
		errs = append(errs, fmt.Errorf("run %s: the tail ends at %d and the event head is %d", now.ID, next, now.EventHead))
	}
	if size > binding.MaxTailBytes && len(now.Tail) > 1 {
		errs = append(errs, fmt.Errorf("run %s: the tail has %d bytes", now.ID, size))
	}
	if now.TailFirst() < old.TailFirst() {
		errs = append(errs, fmt.Errorf("run %s: the tail grows backwards", now.ID))
	}
	for _, b := range old.Tail {
		if b.First >= now.TailFirst() && !slices.ContainsFunc(now.Tail, func(o binding.Batch) bool {
			return o.First == b.First && o.Nonce == b.Nonce && len(o.Events) == len(b.Events)
		}) {
			errs = append(errs, fmt.Errorf("run %s: batch %d is rewritten", now.ID, b.First))
		}
	}
	return errs
}
