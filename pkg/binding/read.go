package binding

import (
	"context"
	"encoding/json"

	"cofferdam.dev/pkg/fault"
)

const (
	// MaxPage is how many events one page holds at most.
	MaxPage = 1024
	// maxPageBytes ends a page early; a single event may be larger.
	maxPageBytes = 1 << 20
	// readChunks is how many chunks are read at a time: each may be as large as the
	// largest batch, and many readers may be at it.
	readChunks = 4
)

// Page is a piece of a run's committed log.
type Page struct {
	// Events from First on, as they were appended.
	Events []json.RawMessage
	// First is the sequence that was asked for, Next the one to ask for next.
	First, Next uint64
	// Ended says that no event follows the page: its last event, or one before,
	// is the terminal.
	Ended bool
}

// Events reads the committed log of a run, active, ending or ended, from
// sequence from on: at most limit events (0 is MaxPage) and about 1 MiB. A page
// without events says that there are none yet, or with Ended none any more. Read
// again to go on: each call reads the record anew, so it makes no difference
// when the tail's beginning passes the cursor. Fault: not_found where the
// binding has no such run, and where its log is not kept any more.
func (w *Writer) Events(ctx context.Context, bindingID, runID string, from uint64, limit int) (Page, error) {
	const op = "binding.Events"
	if limit <= 0 || limit > MaxPage {
		limit = MaxPage
	}
	r, err := w.store.Load(ctx, bindingID)
	if err != nil {
		return Page{}, fail(ctx, err, op)
	}
	if run, entry := r.find(runID); run != nil {
		p, err := w.page(ctx, run, entry != nil && entry.Terminal, from, limit)
		return p, fail(ctx, err, op)
	}
	// The document is written before the run leaves the record.
	d, err := w.concluded(ctx, bindingID, runID)
	if err != nil {
		return Page{}, fail(ctx, err, op)
	}
	if d.Forgotten {
		return Page{}, Forgotten(op)
	}
	p := newPage(from)
	if err := w.fromChunks(ctx, &p, runID, d.Events, limit); err != nil {
		if d, derr := w.concluded(ctx, bindingID, runID); derr == nil && d.Forgotten { // meanwhile
			return Page{}, Forgotten(op)
		}
		return Page{}, fail(ctx, err, op)
	}
	p.Ended = p.Next >= d.Events
	return p, nil
}

// Forgotten is the fault of a run whose log is not kept any more: not_found.
func Forgotten(op string) error {
	return fault.New(fault.NotFound, op, fault.Detail("events: those of this run are not kept any more; how it ended still is"))
}

// page reads of a run that is in the record: chunks before the tail's beginning,
// else the tail. What is before the tail is in chunks, as it was put there
// first.
func (w *Writer) page(ctx context.Context, run *Run, terminal bool, from uint64, limit int) (Page, error) {
	p := newPage(from)
	if from < run.TailFirst() {
		if err := w.fromChunks(ctx, &p, run.ID, run.TailFirst(), limit); err != nil {
			return Page{}, err
		}
	} else {
		p.take(run.Tail, run.EventHead, limit)
	}
	p.Ended = terminal && p.Next >= run.EventHead
	return p, nil
}

func (w *Writer) fromChunks(ctx context.Context, p *Page, runID string, end uint64, limit int) error {
	if p.First >= end {
		return nil
	}
	for p.Next < end {
		chunks, err := w.store.Chunks(ctx, runID, p.Next, readChunks)
		if err != nil {
			return err
		}
		next := p.Next
		for _, c := range chunks {
			if full := p.take(c.Batches, end, limit); full {
				return nil
			}
		}
		if len(chunks) < readChunks || p.Next == next { // the log is being forgotten
			break
		}
	}
	if len(p.Events) == 0 {
		return errBroken // a committed event must be somewhere
	}
	return nil
}

func newPage(from uint64) Page { return Page{First: from, Next: from} }

// take adds the events that follow, and reports that the page has no room for the
// next one. It never skips one.
func (p *Page) take(batches []Batch, end uint64, limit int) (full bool) {
	bytes := 0
	for _, e := range p.Events {
		bytes += len(e)
	}
	for _, b := range batches {
		for i, e := range b.Events {
			seq := b.First + uint64(i)
			if seq != p.Next || seq >= end {
				continue
			}
			if len(p.Events) >= limit || len(p.Events) > 0 && bytes+len(e) > maxPageBytes {
				return true
			}
			p.Events = append(p.Events, e)
			p.Next++
			bytes += len(e)
		}
	}
	return false
}
