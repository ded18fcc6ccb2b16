// Package snapshotstoretest has the suite that every back end of the snapshot
// store must pass.
package snapshotstoretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

const most = 4

// now is what a store can keep: it has whole microseconds.
var now = time.Unix(1700000000, 123456000)

// test is one case on one store.
type test struct {
	*testing.T
	threadstate.Snapshots
}

// Run runs the suite. open gives an empty store for each case; a second call in
// the same test gives another client of the same store.
func Run(t *testing.T, open func(t *testing.T) threadstate.Snapshots) {
	t.Helper()
	for name, f := range map[string]func(test){
		"staged is met by nobody":                    stagedIsHidden,
		"confirmed is what was staged":               confirmed,
		"the same again meets the first":             again,
		"other content does not replace":             otherContent,
		"drop leaves what is confirmed":              dropConfirmed,
		"drop of what is staged":                     dropStaged,
		"confirm of what is not there":               confirmMissing,
		"bound counts every generation":              bound,
		"bound is for one run":                       boundPerRun,
		"bound holds for concurrent writers":         boundConcurrent,
		"one of many of a missing key (beanie 1350)": oneStands,
		"a context that has ended writes none":       ended,
		"largest payload":                            largest,
		"payload in the object store":                elsewhere,
		"list has one binding, the oldest first":     list,
		"removed is gone, whatever it was":           remove,
		"unsettled bindings in pages":                unsettled,
		"settled is looked at with what is newer":    settle,
	} {
		t.Run(name, func(t *testing.T) { f(test{t, open(t)}) })
	}
}

func snapshot(run, ref, payload string) threadstate.Snapshot {
	return threadstate.Snapshot{Payload: []byte(payload), Entry: threadstate.Entry{At: now, Info: threadstate.Info{
		Ref:     ref,
		Owner:   threadstate.Owner{BindingID: "hs_1", Epoch: 1, Generation: 2, RunID: run},
		Codec:   threadstate.Codec{Name: "test", Version: 3},
		Content: blob.Of([]byte(payload)),
	}}}
}

func (t test) stage(snap threadstate.Snapshot) threadstate.Info {
	t.Helper()
	stands, err := t.Stage(t.Context(), snap, most)
	if err != nil {
		t.Fatal(err)
	}
	return stands.Info
}

func (t test) wantErr(err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func stagedIsHidden(t test) {
	t.stage(snapshot("run", "ref", "state"))
	_, err := t.Stat(t.Context(), "ref")
	t.wantErr(err, threadstate.ErrNoSnapshot)
	_, err = t.Load(t.Context(), "ref")
	t.wantErr(err, threadstate.ErrNoSnapshot)
}

func confirmed(t test) {
	want := snapshot("run", "ref", "state\x00\xff")
	t.stage(want)
	for range 2 {
		if err := t.Confirm(t.Context(), "ref"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := t.Load(t.Context(), "ref")
	if err != nil || got.Info != want.Info || string(got.Payload) != string(want.Payload) {
		t.Errorf("got %+v, %v", got, err)
	}
	e, err := t.Stat(t.Context(), "ref")
	if err != nil || e.Info != want.Info || e.Blob != "" || !e.Confirmed || !e.At.Equal(now) {
		t.Errorf("got %+v, %v", e, err)
	}
}

func again(t test) {
	want := snapshot("run", "ref", "state")
	first, second := t.stage(want), t.stage(want)
	if first != want.Info || second != want.Info {
		t.Errorf("got %+v and %+v", first, second)
	}
}

func otherContent(t test) {
	want := snapshot("run", "ref", "state")
	t.stage(want)
	if got := t.stage(snapshot("run", "ref", "other")); got != want.Info {
		t.Errorf("got %+v, want the first", got)
	}
	if err := t.Confirm(t.Context(), "ref"); err != nil {
		t.Fatal(err)
	}
	if got, err := t.Load(t.Context(), "ref"); err != nil || string(got.Payload) != "state" {
		t.Errorf("payload is %q, %v", got.Payload, err)
	}
}

func dropConfirmed(t test) {
	t.stage(snapshot("run", "ref", "state"))
	if err := errors.Join(t.Confirm(t.Context(), "ref"), t.Drop(t.Context(), "ref")); err != nil {
		t.Fatal(err)
	}
	if _, err := t.Load(t.Context(), "ref"); err != nil {
		t.Errorf("a confirmed snapshot was dropped: %v", err)
	}
}

func dropStaged(t test) {
	t.stage(snapshot("run", "ref", "state"))
	for range 2 {
		if err := t.Drop(t.Context(), "ref"); err != nil {
			t.Fatal(err)
		}
	}
	t.wantErr(t.Confirm(t.Context(), "ref"), threadstate.ErrNoSnapshot)
}

func confirmMissing(t test) {
	t.wantErr(t.Confirm(t.Context(), "ref"), threadstate.ErrNoSnapshot)
}

func bound(t test) {
	for n := range most {
		snap := snapshot("run", fmt.Sprint("ref-", n), "state")
		snap.Owner.Generation += uint32(n)
		t.stage(snap)
	}
	_, err := t.Stage(t.Context(), snapshot("run", "one more", "state"), most)
	t.wantErr(err, threadstate.ErrFull)
	if err := t.Confirm(t.Context(), "one more"); !errors.Is(err, threadstate.ErrNoSnapshot) {
		t.Errorf("what was refused is there: %v", err)
	}
	// A repeat of one that is there is no further one.
	t.stage(snapshot("run", "ref-0", "state"))
}

func boundPerRun(t test) {
	for n := range most {
		t.stage(snapshot("run", fmt.Sprint("ref-", n), "state"))
	}
	t.stage(snapshot("other run", "other ref", "state"))
	epoch := snapshot("run", "other epoch", "state")
	epoch.Owner.Epoch++
	t.stage(epoch)
}

func boundConcurrent(t test) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	staged := 0
	for n := range 4 * most {
		wg.Go(func() {
			_, err := t.Stage(t.Context(), snapshot("run", fmt.Sprint("ref-", n), "state"), most)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				staged++
			case !errors.Is(err, threadstate.ErrFull):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if staged != most {
		t.Errorf("%d snapshots were staged, want %d", staged, most)
	}
}

func oneStands(t test) {
	const writers = 8
	got := make([]threadstate.Info, writers)
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			stands, err := t.Stage(t.Context(), snapshot("run", "ref", fmt.Sprint("state ", n)), most)
			if err != nil {
				t.Error(err)
			}
			got[n] = stands.Info
		})
	}
	wg.Wait()
	for n := range writers {
		if got[n] != got[0] {
			t.Fatalf("two snapshots stand under one reference: %+v and %+v", got[0], got[n])
		}
	}
}

func ended(t test) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := t.Stage(ctx, snapshot("run", "ref", "state"), most); err == nil {
		t.Error("a write with an ended context was acknowledged")
	}
	t.wantErr(t.Confirm(t.Context(), "ref"), threadstate.ErrNoSnapshot)
}

func largest(t test) {
	want := snapshot("run", "ref", string(make([]byte, threadstate.MaxInlineBytes)))
	t.stage(want)
	if err := t.Confirm(t.Context(), "ref"); err != nil {
		t.Fatal(err)
	}
	if got, err := t.Load(t.Context(), "ref"); err != nil || blob.Of(got.Payload) != want.Content {
		t.Errorf("the largest payload came back otherwise: %v", err)
	}
}

// The key that stands is the one that was staged first, as what it names may be
// there already.
func elsewhere(t test) {
	large := func(key string) threadstate.Snapshot {
		snap := snapshot("run", "ref", "large")
		snap.Payload, snap.Blob, snap.Size = nil, key, threadstate.MaxSnapshotBytes
		return snap
	}
	for n, key := range []string{"first", "second"} {
		stands, err := t.Stage(t.Context(), large(key), most)
		if err != nil || stands.Info != large(key).Info || stands.Blob != "first" || stands.Confirmed {
			t.Fatalf("time %d: got %+v, %v", n, stands, err)
		}
	}
	if err := t.Confirm(t.Context(), "ref"); err != nil {
		t.Fatal(err)
	}
	if stands, err := t.Stage(t.Context(), large("third"), most); err != nil || !stands.Confirmed || stands.Blob != "first" {
		t.Errorf("got %+v, %v", stands, err)
	}
	got, err := t.Load(t.Context(), "ref")
	if err != nil || got.Info != large("").Info || got.Blob != "first" || len(got.Payload) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// of is a snapshot of another binding, some seconds later.
func of(binding, ref string, later int) threadstate.Snapshot {
	s := snapshot("run of "+ref, ref, "state")
	s.Owner.BindingID, s.At = binding, now.Add(time.Duration(later)*time.Second)
	return s
}

func (t test) refs(binding string) (refs []string) {
	t.Helper()
	all, err := t.List(t.Context(), binding)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		refs = append(refs, e.Ref)
	}
	return refs
}

func list(t test) {
	t.stage(of("hs_1", "c", 1))
	t.stage(of("hs_1", "b", 3))
	t.stage(of("hs_1", "a", 2))
	t.stage(of("hs_2", "d", 0))
	if err := t.Confirm(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := t.refs("hs_1"); !slices.Equal(got, []string{"c", "a", "b"}) {
		t.Errorf("got %v", got)
	}
	all, err := t.List(t.Context(), "hs_1")
	if err != nil || all[0].Confirmed || !all[1].Confirmed || all[1].Info != of("hs_1", "a", 2).Info || !all[1].At.Equal(now.Add(2*time.Second)) {
		t.Errorf("got %+v, %v", all, err)
	}
	if got := t.refs("hs_none"); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func remove(t test) {
	t.stage(of("hs_1", "staged", 0))
	t.stage(of("hs_1", "confirmed", 1))
	t.stage(of("hs_1", "stays", 2))
	if err := t.Confirm(t.Context(), "confirmed"); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"staged", "confirmed", "confirmed", "never there"} {
		if err := t.Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	if got := t.refs("hs_1"); !slices.Equal(got, []string{"stays"}) {
		t.Errorf("got %v", got)
	}
	_, err := t.Stat(t.Context(), "confirmed")
	t.wantErr(err, threadstate.ErrNoSnapshot)
	t.wantErr(t.Confirm(t.Context(), "staged"), threadstate.ErrNoSnapshot)
}

func (t test) wantUnsettled(before int, after string, limit int, want ...string) {
	t.Helper()
	got, err := t.Unsettled(t.Context(), now.Add(time.Duration(before)*time.Second), after, limit)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("before %d s and after %q: got %v, %v, want %v", before, after, got, err, want)
	}
}

func unsettled(t test) {
	t.stage(of("hs_2", "a", 0))
	t.stage(of("hs_2", "b", 1))
	t.stage(of("hs_1", "c", 2))
	t.stage(of("hs_3", "d", 3))
	t.wantUnsettled(0, "", 9)
	t.wantUnsettled(1, "", 9, "hs_2")
	t.wantUnsettled(9, "", 9, "hs_1", "hs_2", "hs_3")
	t.wantUnsettled(9, "", 2, "hs_1", "hs_2")
	t.wantUnsettled(9, "hs_2", 2, "hs_3")
}

func settle(t test) {
	t.stage(of("hs_1", "old", 0))
	for range 2 {
		if err := t.Settle(t.Context(), "old"); err != nil {
			t.Fatal(err)
		}
	}
	t.wantUnsettled(9, "", 9)
	t.stage(of("hs_1", "new", 1))
	t.wantUnsettled(9, "", 9, "hs_1")
	if got := t.refs("hs_1"); !slices.Equal(got, []string{"old", "new"}) {
		t.Errorf("got %v", got)
	}
}
