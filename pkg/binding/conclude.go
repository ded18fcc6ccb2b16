package binding

import (
	"context"
	"slices"

	"cofferdam.dev/pkg/failpoint"
)

// What a run can have left behind in the world, as its terminal says.
const (
	SideEffectsNone     = "none"
	SideEffectsPossible = "possible"
	SideEffectsKnown    = "known"
)

// ConcludeRun makes write 8 for the run in ending: revoke, terminal, chunks, run
// document, and only then the removal of the entry. Any replica may call it, at
// any moment and from wherever another one left off; all of them together
// conclude the run once. closing makes the closing events and the terminal for
// run.End, from the run's event head on; it may be called by several replicas,
// of which one is heard. It answers with the document that stands. The claim of
// the lease is not touched: delete it, then DropLease.
//
// Faults: not_found where the run is neither ending nor ended, and closing's.
func (w *Writer) ConcludeRun(ctx context.Context, bindingID, runID string, closing func(run Run, sideEffects string) (Batch, error)) (RunDocument, error) {
	d, err := w.concludeRun(ctx, bindingID, runID, closing)
	return d, fail(ctx, err, "binding.ConcludeRun")
}

func (w *Writer) concludeRun(ctx context.Context, bindingID, runID string, closing func(Run, string) (Batch, error)) (RunDocument, error) {
	r, err := w.store.Load(ctx, bindingID)
	if err != nil {
		return RunDocument{}, err
	}
	_, entry := r.find(runID)
	if entry == nil {
		return w.concluded(ctx, bindingID, runID)
	}
	effects, err := w.Revoke(ctx, r, *entry)
	if err != nil {
		return RunDocument{}, err
	}
	if !entry.Terminal {
		b, err := closing(*entry.Run, effects)
		if err != nil {
			return RunDocument{}, err
		}
		if err := w.PutTerminal(ctx, bindingID, runID, b); err != nil {
			return RunDocument{}, err
		}
	}
	d, err := w.document(ctx, bindingID, runID, effects)
	if err != nil {
		return RunDocument{}, err
	}
	for _, step := range []func() error{
		func() error { return w.archive(ctx, bindingID, runID) },
		func() error { return w.PutRun(ctx, d) },
		func() error { failpoint.Reach(failpoint.RunDocumented); return w.DropRun(ctx, bindingID, runID) },
	} {
		if err := step(); err != nil {
			return RunDocument{}, err
		}
	}
	return w.concluded(ctx, bindingID, runID)
}

func (w *Writer) concluded(ctx context.Context, bindingID, runID string) (RunDocument, error) {
	d, err := w.store.LoadRun(ctx, runID)
	if err == nil && d.BindingID != bindingID {
		err = ErrNotFound
	}
	return d, err
}

// document is what is to remain of a run in ending that has its terminal; the
// document that remains already, where another replica was faster.
func (w *Writer) document(ctx context.Context, bindingID, runID, effects string) (RunDocument, error) {
	r, err := w.store.Load(ctx, bindingID)
	if err != nil {
		return RunDocument{}, err
	}
	run, entry := r.find(runID)
	if entry == nil {
		return w.concluded(ctx, bindingID, runID)
	}
	if !entry.Terminal || run.EventHead == 0 {
		return RunDocument{}, ErrNotConcluded
	}
	last, err := w.page(ctx, run, entry.Terminal, run.EventHead-1, 1)
	if err != nil {
		return RunDocument{}, err
	}
	d := RunDocument{
		RunID: run.ID, BindingID: r.ID, Epoch: entry.Epoch, Generation: entry.Generation, RequestID: run.RequestID,
		KeyDigest: run.KeyDigest, ContentDigest: run.ContentDigest, AskedBy: run.AskedBy, Carried: run.Carried, DelegatedBy: run.DelegatedBy, StartedAt: run.StartedAt, EndedAt: w.now().UTC(),
		End: run.End, Events: run.EventHead, SideEffects: effects, Terminal: last.Events[0],
	}
	if r.Head.RunID == run.ID {
		d.HeadRevision = r.Head.Revision
	}
	return d, nil
}

// Revoke is the first step of write 8, and comes before every terminal: for each
// admitted effect of the run that has no ledger row it inserts revoked, so that
// a broker that comes late loses the insert and does nothing (model: M_REVOKE).
// It answers with the side-effect status: possible where a row is dispatched,
// else known where one is concluded, else none; none stays true. e is an entry
// of r.Ending, or is made of r's active run whose end is decided. Fault:
// internal with ErrEndOpen while effects can still be admitted.
func (w *Writer) Revoke(ctx context.Context, r Record, e Ending) (sideEffects string, err error) {
	const op = "binding.Revoke"
	if e.Run == nil {
		return SideEffectsNone, nil
	}
	if e.Run.End.Open() {
		return "", fail(ctx, ErrEndOpen, op)
	}
	for _, key := range e.Run.Admitted {
		row := Row{
			RowKey: RowKey{BindingID: r.ID, Epoch: e.Epoch, RunID: e.Run.ID, Key: key}, Generation: e.Generation,
			Nonce: newNonce(), State: RowRevoked, Kind: "revoked", At: w.now().UTC(),
		}
		if _, err := settled(ctx, func() (Row, error) { return w.store.InsertRow(ctx, row) }); err != nil {
			return "", fail(ctx, err, op)
		}
	}
	rows, err := w.store.Rows(ctx, r.ID, e.Epoch, e.Run.ID)
	if err != nil {
		return "", fail(ctx, err, op)
	}
	return sideEffectsOf(rows), nil
}

func sideEffectsOf(rows []Row) string {
	status := SideEffectsNone
	for _, row := range rows {
		switch row.State {
		case RowDispatched:
			return SideEffectsPossible
		case RowConcluded:
			status = SideEffectsKnown
		case RowNotDispatched, RowRevoked:
		}
	}
	return status
}

// revoked refuses a terminal while an admitted effect has no row. After the end
// is decided no key joins the admitted ones, so a read is enough.
func (w *Writer) revoked(ctx context.Context, bindingID, runID string) error {
	r, err := w.store.Load(ctx, bindingID)
	if err != nil {
		return err
	}
	run, entry := r.find(runID)
	if run == nil || run.End.Open() || len(run.Admitted) == 0 {
		return nil // the write itself decides
	}
	epoch := r.Epoch
	if entry != nil {
		epoch = entry.Epoch
	}
	rows, err := w.store.Rows(ctx, bindingID, epoch, runID)
	if err != nil {
		return err
	}
	for _, key := range run.Admitted {
		if !slices.ContainsFunc(rows, func(row Row) bool { return row.Key == key }) {
			return ErrNotRevoked
		}
	}
	return nil
}

// PutTerminal writes closing events and the terminal of the run in ending, in
// one write, where the entry has no terminal yet; where it has one, whoever
// wrote it, nothing is left to do. Two terminals, or closing events of two
// replicas, cannot come of it (model: ASIS_CONC). Faults: stale_lease where the
// run is not ending or its log is not as the batch assumes; internal with
// ErrNotRevoked.
func (w *Writer) PutTerminal(ctx context.Context, bindingID, runID string, b Batch) error {
	const op = "binding.PutTerminal"
	b, err := b.normal(op)
	if err != nil {
		return err
	}
	if err := w.revoked(ctx, bindingID, runID); err != nil {
		return fail(ctx, err, op)
	}
	err = w.withRoom(ctx, bindingID, runID, func() error {
		_, err := w.update(ctx, bindingID, Filter{}, func(r *Record) error { return r.putTerminal(runID, b) })
		return err
	})
	return fail(ctx, w.orConcluded(ctx, err, bindingID, runID), op)
}

func (r *Record) putTerminal(runID string, b Batch) error {
	run, entry := r.find(runID)
	switch {
	case entry == nil:
		return ErrFenced
	case entry.Terminal:
		return errStands
	case b.First != run.EventHead:
		return ErrFenced
	case !run.fits(b):
		return errTailFull
	}
	run.push(b)
	entry.Terminal = true
	return nil
}

// orConcluded turns a write that did not match into success where the run has
// its document: another replica got that far.
func (w *Writer) orConcluded(ctx context.Context, err error, bindingID, runID string) error {
	if err == nil || !decided(err) {
		return err
	}
	if _, derr := w.concluded(ctx, bindingID, runID); derr == nil {
		return nil
	}
	return err
}

// PutRun writes the document of a run that has its terminal; the first one
// stands. It is repeatable.
func (w *Writer) PutRun(ctx context.Context, d RunDocument) error {
	const op = "binding.PutRun"
	if d.RunID == "" || d.BindingID == "" || d.End.Open() || len(d.Terminal) == 0 || d.Events == 0 {
		return misuse(op, "a run document needs run, binding, end and terminal")
	}
	_, err := settled(ctx, func() (struct{}, error) { return struct{}{}, w.store.PutRun(ctx, d) })
	return fail(ctx, err, op)
}

// DropRun removes the run's entry from ending, the last step of write 8: only
// after terminal, chunks and run document. It is repeatable. Fault: internal
// with ErrNotConcluded where one of these is missing.
func (w *Writer) DropRun(ctx context.Context, bindingID, runID string) error {
	const op = "binding.DropRun"
	switch _, err := w.concluded(ctx, bindingID, runID); {
	case notFound(err):
		return fail(ctx, ErrNotConcluded, op)
	case err != nil:
		return fail(ctx, err, op)
	}
	_, err := w.update(ctx, bindingID, Filter{}, func(r *Record) error { return r.dropRun(runID) })
	return fail(ctx, err, op)
}

func (r *Record) dropRun(runID string) error {
	run, entry := r.find(runID)
	switch {
	case run == nil:
		return errStands
	case entry == nil || !entry.Terminal || len(run.Tail) > 0:
		return ErrNotConcluded
	}
	r.Ending = slices.DeleteFunc(r.Ending, func(e Ending) bool { return e.Run != nil && e.Run.ID == runID })
	return nil
}

// DropLease removes a lease from ending, after its claim was deleted. It is
// repeatable.
func (w *Writer) DropLease(ctx context.Context, bindingID, claimName string) error {
	gone := func(e Ending) bool { return e.Lease != nil && e.Lease.ClaimName == claimName }
	_, err := w.update(ctx, bindingID, Filter{}, func(r *Record) error {
		if !slices.ContainsFunc(r.Ending, gone) {
			return errStands
		}
		r.Ending = slices.DeleteFunc(r.Ending, gone)
		return nil
	})
	return fail(ctx, err, "binding.DropLease")
}
