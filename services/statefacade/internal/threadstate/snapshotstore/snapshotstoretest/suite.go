// Package snapshotstoretest has the suite that every back end of the snapshot
// store must pass.
package snapshotstoretest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"

	"cofferdam.dev/services/statefacade/internal/threadstate"
)

const most = 4

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
	} {
		t.Run(name, func(t *testing.T) { f(test{t, open(t)}) })
	}
}

func snapshot(run, ref, payload string) threadstate.Snapshot {
	return threadstate.Snapshot{Payload: []byte(payload), Info: threadstate.Info{
		Ref:    ref,
		Owner:  threadstate.Owner{BindingID: "hs_1", Epoch: 1, Generation: 2, RunID: run},
		Codec:  threadstate.Codec{Name: "test", Version: 3},
		SHA256: sha256.Sum256([]byte(payload)),
	}}
}

func (t test) stage(snap threadstate.Snapshot) threadstate.Info {
	t.Helper()
	info, err := t.Stage(t.Context(), snap, most)
	if err != nil {
		t.Fatal(err)
	}
	return info
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
	info, err := t.Stat(t.Context(), "ref")
	if err != nil || info != want.Info {
		t.Errorf("got %+v, %v", info, err)
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
			var err error
			if got[n], err = t.Stage(t.Context(), snapshot("run", "ref", fmt.Sprint("state ", n)), most); err != nil {
				t.Error(err)
			}
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
	want := snapshot("run", "ref", string(make([]byte, threadstate.MaxSnapshotBytes)))
	t.stage(want)
	if err := t.Confirm(t.Context(), "ref"); err != nil {
		t.Fatal(err)
	}
	if got, err := t.Load(t.Context(), "ref"); err != nil || sha256.Sum256(got.Payload) != want.SHA256 {
		t.Errorf("the largest payload came back otherwise: %v", err)
	}
}
