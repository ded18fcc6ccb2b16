package binding

import (
	"bytes"
	"encoding/json"
	"slices"
)

// find gives the run of this id wherever it stands, and where it stands: entry
// is nil for the active run.
func (r *Record) find(runID string) (run *Run, entry *Ending) {
	if r.Run != nil && r.Run.ID == runID {
		return r.Run, nil
	}
	if e := r.EndingRun(); e != nil && e.Run.ID == runID {
		return e.Run, e
	}
	return nil, nil
}

// EndingRun is the entry of the run that waits to be concluded, or nil. There is
// never more than one.
func (r Record) EndingRun() *Ending {
	for i := range r.Ending {
		if r.Ending[i].Run != nil {
			return &r.Ending[i]
		}
	}
	return nil
}

// retireRun moves the active run to ending. Its end is lost where it was open
// (model: ASIS_CLEAR, without which a cleared run could never be concluded).
func (r *Record) retireRun(terminal bool) {
	run := r.Run
	if run == nil {
		return
	}
	if run.End.Open() {
		run.End = End{Kind: EndLost}
	}
	r.Ending = append(r.Ending, Ending{Epoch: r.Epoch, Generation: r.Generation, Run: run, Terminal: terminal})
	r.Run = nil
}

// retireLease moves the lease to ending.
func (r *Record) retireLease() {
	if r.Lease == nil {
		return
	}
	r.Ending = append(r.Ending, Ending{Epoch: r.Epoch, Generation: r.Generation, Lease: r.Lease})
	r.Lease = nil
}

// TailFirst is the sequence at which the tail begins: what went before stands in
// chunks.
func (r *Run) TailFirst() uint64 {
	if len(r.Tail) == 0 {
		return r.EventHead
	}
	return r.Tail[0].First
}

func (r *Run) tailBytes() int {
	n := 0
	for _, b := range r.Tail {
		n += b.Bytes()
	}
	return n
}

// fits reports whether the tail has room. A batch may always stand alone.
func (r *Run) fits(b Batch) bool {
	return len(r.Tail) == 0 || r.tailBytes()+b.Bytes() <= MaxTailBytes
}

func (r *Run) push(b Batch) {
	r.Tail = append(r.Tail, b)
	r.EventHead = b.Next()
	r.LogBytes += uint64(b.Bytes()) //nolint:gosec // a length is not negative
}

// holds reports whether the tail has this very batch.
func (r *Run) holds(b Batch) bool { return holds(r.Tail, b) }

// holds looks for a batch under its nonce. The sequence alone proves nothing
// (model: M_NONCE), and a nonce with another content is another batch
// (ASIS_BATCH).
func holds(in []Batch, b Batch) bool {
	return slices.ContainsFunc(in, b.same)
}

func (b Batch) same(o Batch) bool {
	return b.Nonce == o.Nonce && b.First == o.First && slices.EqualFunc(b.Events, o.Events, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}
