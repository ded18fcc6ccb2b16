package cataloguetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/services/filebroker/internal/files"
)

func handleUsed(t test) {
	_, err := t.UseHandle(t.Context(), "none", "key")
	t.wantErr(err, files.ErrNoHandle)
	h := files.Handle{ID: "h", BindingID: "hs_1", Epoch: 1, Generation: 1, RunID: "run", Direction: files.DirectionDownload, SingleUse: true, Types: "image/* text/plain", ExpiresAt: later, Issue: "i"}
	if got, err := t.StageHandle(t.Context(), h, 4); err != nil || got != h {
		t.Errorf("got %+v, %v", got, err)
	}
	t.must(t.ConfirmHandle(t.Context(), "h"))
	for _, by := range []string{"first", "second", "first"} {
		if got, err := t.UseHandle(t.Context(), "h", by); err != nil || got != "first" {
			t.Errorf("%s: got %q, %v", by, got, err)
		}
	}
}

func partial(handle string) files.PartialUpload {
	o := object("of "+handle, 10)
	return files.PartialUpload{Handle: handle, ObjectID: o.ID, BindingID: o.BindingID, ArgsDigest: "args", Info: o.Info, ExpiresAt: later}
}

func same(a, b files.PartialUpload) bool {
	ok := slices.Equal(a.Parts, b.Parts) && a.ExpiresAt.Equal(b.ExpiresAt)
	return ok && a.Handle == b.Handle && a.ObjectID == b.ObjectID && a.BindingID == b.BindingID && a.ArgsDigest == b.ArgsDigest && a.Info == b.Info
}

func uploadParts(t test) {
	u := partial("h")
	first, second := files.Part{Content: blob.Of([]byte("abc")), ID: "a"}, files.Part{Content: blob.Of([]byte("de")), ID: "b"}
	_, err := t.PartialUpload(t.Context(), "h")
	t.wantErr(err, files.ErrNoUpload)
	_, err = t.AppendPart(t.Context(), u, first)
	t.wantErr(err, files.ErrNoUpload)
	other := u
	other.ObjectID = "another"
	for _, o := range []files.PartialUpload{u, other} {
		if got, err := t.BeginUpload(t.Context(), o); err != nil || !same(got, u) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	one, err := t.AppendPart(t.Context(), u, first)
	if err != nil || !same(one, u.With(first)) {
		t.Errorf("got %+v, %v", one, err)
	}
	if got, err := t.AppendPart(t.Context(), u, second); err != nil || !same(got, one) { // in the place of the first
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := t.AppendPart(t.Context(), other.With(first), second); err != nil || !same(got, one) { // to another object
		t.Errorf("got %+v, %v", got, err)
	}
	both, err := t.AppendPart(t.Context(), one, second)
	if got, rerr := t.PartialUpload(t.Context(), "h"); err != nil || rerr != nil || !same(got, both) || !same(both, u.With(first).With(second)) || got.Next() != 5 {
		t.Errorf("got %+v and %+v, %v, %v", both, got, err, rerr)
	}
	for range 2 {
		t.must(t.EndUpload(t.Context(), "h"))
	}
	_, err = t.PartialUpload(t.Context(), "h")
	t.wantErr(err, files.ErrNoUpload)
}

func uploadConcurrent(t test) {
	u, err := t.BeginUpload(t.Context(), partial("h"))
	t.must(err)
	const many = 4
	stands := make([]files.PartialUpload, many)
	var wg sync.WaitGroup
	for n := range many {
		wg.Go(func() {
			var err error
			if stands[n], err = t.AppendPart(t.Context(), u, files.Part{Content: blob.Of([]byte("abc")), ID: fmt.Sprint(n)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range stands {
		if len(s.Parts) != 1 || !same(s, stands[0]) {
			t.Errorf("two stand: %+v and %+v", s, stands[0])
		}
	}
}

func expired(t test) {
	for n, end := range []time.Time{now, later, later.Add(time.Hour)} {
		u := partial(fmt.Sprint("h", n))
		u.ExpiresAt = end
		_, err := t.BeginUpload(t.Context(), u)
		t.must(err)
		_, err = t.StageHandle(t.Context(), files.Handle{ID: u.Handle, BindingID: "hs_1", Epoch: 1, RunID: "run", Direction: files.DirectionUpload, ExpiresAt: end, Issue: u.Handle}, 3)
		t.must(err)
		t.must(t.ConfirmHandle(t.Context(), u.Handle))
	}
	got, err := t.ExpiredUploads(t.Context(), later, 10)
	if err != nil || len(got) != 1 || got[0].Handle != "h0" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = t.ExpiredUploads(t.Context(), later.Add(time.Minute), 1); err != nil || len(got) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	t.must(t.ForgetExpired(t.Context(), later))
	_, err = t.Handle(t.Context(), "h0")
	t.wantErr(err, files.ErrNoHandle)
	for _, id := range []string{"h1", "h2"} {
		if _, err := t.Handle(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	// What is forgotten gives its place to another one.
	_, err = t.StageHandle(t.Context(), files.Handle{ID: "h3", BindingID: "hs_1", Epoch: 1, RunID: "run", Direction: files.DirectionUpload, ExpiresAt: later, Issue: "h3"}, 3)
	t.must(err)
}

func entries(t test) {
	own := object("b", 1)
	own.RunID = ""
	for _, o := range []files.Object{object("c", 1), own, object("a", 1)} {
		t.stage(o)
	}
	_, err := t.Complete(t.Context(), completion("slot", "b"))
	t.must(err)
	var got []files.Entry
	for after := ""; len(got) <= 3; {
		page, err := t.Entries(t.Context(), after, 2)
		t.must(err)
		if len(page) == 0 {
			break
		}
		got, after = append(got, page...), page[len(page)-1].ID
	}
	if len(got) != 3 {
		t.Fatalf("got %+v", got)
	}
	for n, want := range []files.Entry{{Object: object("a", 1), Referenced: true}, {Object: own, Visible: true}, {Object: object("c", 1), Referenced: true}} {
		e := got[n]
		if e.ID != want.ID || e.BindingID != want.BindingID || e.Epoch != want.Epoch || e.RunID != want.RunID || e.Visible != want.Visible || e.Referenced != want.Referenced ||
			!e.CreatedAt.Equal(now) || !e.StagedUntil.Equal(later) {
			t.Errorf("got %+v, want %+v", e, want)
		}
	}
	for id, want := range map[string]bool{"a": true, "b": true, "none": false} {
		if got, err := t.Known(t.Context(), id); err != nil || got != want {
			t.Errorf("%s is known: %v, %v", id, got, err)
		}
	}
}

// stored makes a visible object that nothing refers to.
func (t test) stored(id string) {
	t.Helper()
	o := object(id, 10)
	o.RunID = ""
	t.stage(o)
	_, err := t.Complete(t.Context(), completion("slot of "+id, id))
	t.must(err)
}

func retired(t test) {
	staged := object("staged", 10)
	t.stage(staged)
	t.stored("used")
	t.stored("unused")
	for id, want := range map[string]error{"used": nil, "staged": files.ErrNoObject, "none": files.ErrNoObject} {
		t.wantErr(t.Refer(t.Context(), id), want)
	}
	for _, c := range []struct {
		id           string
		unused, want bool
	}{
		{"staged", false, false}, {"none", false, false}, {"used", true, false}, {"unused", true, true}, {"unused", true, false}, {"used", false, true}, {"used", false, false},
	} {
		if got, err := t.Retire(t.Context(), c.id, c.unused); err != nil || got != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	for _, id := range []string{"used", "unused"} {
		_, err := t.Object(t.Context(), id)
		t.wantErr(err, files.ErrNoObject)
		t.wantErr(t.Refer(t.Context(), id), files.ErrNoObject)
		_, err = t.Completed(t.Context(), "slot of "+id)
		t.wantErr(err, files.ErrNoCompletion)
	}
	t.stage(object("room", 90)) // beside the staged one
	_, err := t.Complete(t.Context(), completion("slot", "staged"))
	t.must(err)
}

func referOrRetire(t test) {
	for n := range 8 {
		id := fmt.Sprint("obj", n)
		t.stored(id)
		var referred error
		var gone bool
		var wg sync.WaitGroup
		wg.Go(func() { referred = t.Refer(t.Context(), id) })
		wg.Go(func() {
			var err error
			if gone, err = t.Retire(t.Context(), id, true); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		_, err := t.Object(t.Context(), id)
		if gone != errors.Is(referred, files.ErrNoObject) || gone != errors.Is(err, files.ErrNoObject) || !gone && referred != nil {
			t.Errorf("it is retired: %v, referred to: %v, and found: %v", gone, referred, err)
		}
		if !gone {
			_, err := t.Retire(t.Context(), id, false)
			t.must(err)
		}
	}
}
