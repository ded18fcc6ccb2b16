package bindingtest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"reflect"
	"time"

	"cofferdam.dev/pkg/binding"
)

func documentInvariants() []Invariant {
	return []Invariant{
		{"T11", "chunk_once", "The first chunk of a key stands, and everybody who puts one learns which.", chunkOnce},
		{"T12", "chunks_in_order", "Chunks are read in the order of the log, from the one that holds the cursor.", chunksInOrder},
		{"T13", "run_document_once", "The first document of a run stands.", runDocumentOnce},
		{"T14", "row_once", "Of several inserts of one ledger row one stands, and everybody sees whose it is.", rowOnce},
		{"T15", "row_settles_once", "A row leaves dispatched once, and only by the nonce that stands in it.", rowSettlesOnce},
		{"T16", "row_scope", "A row belongs to one binding, epoch, run and key.", rowScope},
	}
}

func chunkOnce(x *world) {
	run := "run_" + rand.Text()
	var n tally
	race(8, func(i int) {
		c := binding.Chunk{RunID: run, First: 3, Batches: []binding.Batch{batch(3, fmt.Sprint(i))}}
		if i%2 == 1 {
			c.Batches = append(c.Batches, batch(4, "more"))
		}
		stands, err := x.b.PutChunk(x.ctx, c)
		if err != nil {
			x.Errorf("put: %v", err)
			return
		}
		n.add(stands.Batches[0].Nonce)
		if reflect.DeepEqual(stands, c) {
			n.add("own")
		}
	})
	got, err := x.b.Chunks(x.ctx, run, 0, 10)
	x.must(err)
	if len(got) != 1 || n.of("own") != 1 || n.of(got[0].Batches[0].Nonce) != 8 {
		x.Fatalf("chunks %v, seen %v", got, n.n)
	}
}

func chunksInOrder(x *world) {
	run := "run_" + rand.Text()
	for _, first := range []uint64{4, 0, 10, 2} { // 0-1, 2-3, 4-9 as two batches, 10
		c := binding.Chunk{RunID: run, First: first, Batches: []binding.Batch{batch(first, "a", "b")}}
		if first == 4 {
			c.Batches = append(c.Batches, batch(6, "c", "d", "e", "f"))
		}
		_, err := x.b.PutChunk(x.ctx, c)
		x.must(err)
	}
	_, err := x.b.PutChunk(x.ctx, binding.Chunk{RunID: "run_" + rand.Text(), First: 0, Batches: []binding.Batch{batch(0, "other")}})
	x.must(err)
	for _, c := range []struct {
		from  uint64
		limit int
		want  []uint64
	}{
		{0, 10, []uint64{0, 2, 4, 10}},
		{0, 2, []uint64{0, 2}},
		{1, 10, []uint64{0, 2, 4, 10}},
		{2, 1, []uint64{2}},
		{9, 10, []uint64{4, 10}},
		{11, 10, []uint64{10}},
		{12, 10, nil},
		{1<<64 - 1, 10, nil},
	} {
		got, err := x.b.Chunks(x.ctx, run, c.from, c.limit)
		x.must(err)
		var firsts []uint64
		for _, g := range got {
			firsts = append(firsts, g.First)
		}
		if !reflect.DeepEqual(firsts, c.want) {
			x.Fatalf("from %d, limit %d: %v, want %v", c.from, c.limit, firsts, c.want)
		}
	}
}

func runDocumentOnce(x *world) {
	at := time.Date(2026, 11, 2, 3, 4, 5, 6, time.UTC)
	want := binding.RunDocument{
		RunID: "run_" + rand.Text(), BindingID: "hs_x", Epoch: 1, Generation: 2, RequestID: "q", KeyDigest: "k", ContentDigest: "c",
		AskedBy: "run_x", Carried: []binding.Carried{{ToolCallID: "call_1", Decision: "edit"}}, StartedAt: at,
		DelegatedBy: &binding.Delegation{BindingID: "hs_y", Epoch: 1, RunID: "run_y", Key: "call_2", Agents: []string{"a", "b"}},
		EndedAt:     at.Add(time.Second), End: binding.End{Kind: binding.EndError, Reason: "model_failed"}, Events: 3, HeadRevision: 4, SideEffects: "none", Terminal: event("<end>"),
	}
	x.must(x.b.PutRun(x.ctx, want))
	other := want
	other.SideEffects = "known"
	x.must(x.b.PutRun(x.ctx, other))
	got, err := x.b.LoadRun(x.ctx, want.RunID)
	x.must(err)
	if !reflect.DeepEqual(got, want) {
		x.Fatalf("got %+v, want %+v", got, want)
	}
	_, err = x.b.LoadRun(x.ctx, "run_unknown")
	x.wantIs(err, binding.ErrNotFound)
}

func rowOf(runID, key, nonce string) binding.Row {
	return binding.Row{
		RowKey:     binding.RowKey{BindingID: "hs_rows", Epoch: 1, RunID: runID, Key: key},
		Generation: 2, Nonce: nonce, State: binding.RowDispatched, Kind: "tool", ArgsDigest: "d", At: time.Date(2026, 11, 2, 3, 4, 5, 6, time.UTC),
	}
}

func rowOnce(x *world) {
	run := "run_" + rand.Text()
	var n tally
	race(16, func(i int) {
		r := rowOf(run, "k", fmt.Sprint(i))
		stands, err := x.b.InsertRow(x.ctx, r)
		if err != nil {
			x.Errorf("insert: %v", err)
			return
		}
		n.add("nonce " + stands.Nonce)
		if stands.Nonce == r.Nonce {
			n.add("own")
		}
	})
	got, err := x.b.LoadRow(x.ctx, rowOf(run, "k", "").RowKey)
	x.must(err)
	if n.of("own") != 1 || n.of("nonce "+got.Nonce) != 16 {
		x.Fatalf("rows: %v", n.n)
	}
	if want := rowOf(run, "k", got.Nonce); !reflect.DeepEqual(got, want) {
		x.Fatalf("got %+v, want %+v", got, want)
	}
}

func rowSettlesOnce(x *world) {
	r := rowOf("run_"+rand.Text(), "k", "mine")
	settle := func(nonce string, to binding.RowState, body string) bool {
		x.Helper()
		ok, err := x.b.SettleRow(x.ctx, r.RowKey, nonce, to, []byte(body))
		x.must(err)
		return ok
	}
	if settle("mine", binding.RowConcluded, "early") {
		x.Fatal("a row that is not there was settled")
	}
	_, err := x.b.InsertRow(x.ctx, r)
	x.must(err)
	if settle("other", binding.RowConcluded, "stolen") {
		x.Fatal("another nonce settled the row")
	}
	if !settle("mine", binding.RowConcluded, "body\x00\xff") {
		x.Fatal("the row's own nonce did not settle it")
	}
	if settle("mine", binding.RowNotDispatched, "") || settle("mine", binding.RowConcluded, "again") {
		x.Fatal("a row was settled twice")
	}
	got, err := x.b.LoadRow(x.ctx, r.RowKey)
	x.must(err)
	if got.State != binding.RowConcluded || !bytes.Equal(got.Outcome, []byte("body\x00\xff")) {
		x.Fatalf("got %+v", got)
	}
	revoked := rowOf(r.RunID, "k2", "n")
	revoked.State = binding.RowRevoked
	_, err = x.b.InsertRow(x.ctx, revoked)
	x.must(err)
	if ok, err := x.b.SettleRow(x.ctx, revoked.RowKey, "n", binding.RowConcluded, nil); err != nil || ok {
		x.Fatalf("a revoked row was settled: %v, %v", ok, err)
	}
}

func rowScope(x *world) {
	r := rowOf("run_"+rand.Text(), "k", "1")
	for i, key := range []binding.RowKey{
		r.RowKey,
		{BindingID: "hs_other", Epoch: 1, RunID: r.RunID, Key: "k"},
		{BindingID: r.BindingID, Epoch: 2, RunID: r.RunID, Key: "k"},
		{BindingID: r.BindingID, Epoch: 1, RunID: r.RunID + "x", Key: "k"},
		{BindingID: r.BindingID, Epoch: 1, RunID: r.RunID, Key: "k2"},
	} {
		r.RowKey, r.Nonce = key, fmt.Sprint(i)
		stands, err := x.b.InsertRow(x.ctx, r)
		x.must(err)
		if stands.Nonce != r.Nonce {
			x.Fatalf("%+v met the row of nonce %s", key, stands.Nonce)
		}
	}
	rows, err := x.b.Rows(x.ctx, "hs_rows", 1, r.RunID)
	x.must(err)
	if len(rows) != 2 || rows[0].Key != "k" || rows[1].Key != "k2" {
		x.Fatalf("rows of one run: %+v", rows)
	}
}
