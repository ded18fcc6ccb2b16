// Package cataloguetest has the suite that every back end of the catalogue of
// objects and handles must pass.
package cataloguetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/services/filebroker/internal/files"
)

// test is one case on one store.
type test struct {
	*testing.T
	files.Catalogue
}

// Run runs the suite. open gives an empty catalogue for each case.
func Run(t *testing.T, open func(t *testing.T) files.Catalogue) {
	t.Helper()
	for name, f := range map[string]func(test){
		"staged object is not visible":      stagedHidden,
		"completed object is visible":       completed,
		"a slot is taken once":              takenOnce,
		"one of many takes a slot":          oneTakes,
		"complete of what is not staged":    completeMissing,
		"drop leaves a visible object":      dropVisible,
		"dropped object cannot complete":    dropStaged,
		"sealed object is what was sealed":  sealed,
		"quota counts what is staged":       quotaStaged,
		"quota forgets what was left":       quotaForgets,
		"quota counts objects":              quotaObjects,
		"quota is for one binding":          quotaPerBinding,
		"quota holds for many at once":      quotaConcurrent,
		"staged handle opens nothing":       handleHidden,
		"confirmed handle is what was made": handleConfirmed,
		"one issue makes one handle":        oneIssue,
		"drop of a handle":                  handleDrop,
		"bound of handles":                  handleBound,
		"confirm of no handle":              handleMissing,
		"a handle is used once":             handleUsed,
		"parts of an upload":                uploadParts,
		"one of many appends a part":        uploadConcurrent,
		"expired uploads and handles":       expired,
		"entries":                           entries,
		"referred to or retired":            retired,
		"of refer and retire one wins":      referOrRetire,
		"contents":                          contents,
		"one of many puts a content":        oneContent,
		"contents that nothing refers to":   unusedContents,
		"of keep and collect one wins":      keepOrCollect,
		"a handle has its contents":         handleContents,
	} {
		t.Run(name, func(t *testing.T) { f(test{t, open(t)}) })
	}
}

var (
	now   = time.Unix(1700000000, 123456000).UTC()
	later = now.Add(time.Minute)
	quota = files.Quota{Bytes: 100, Objects: 4, Now: now}
)

func object(id string, size int64) files.Object {
	return files.Object{ID: id, BindingID: "hs_1", Epoch: 1, RunID: "run", Info: files.Info{
		Content: blob.Content{Size: size, SHA256: sha256.Sum256([]byte(id))}, MIME: "text/plain", Name: "name é",
	}}
}

func completion(slot, object string) files.Completion {
	return files.Completion{Slot: slot, Key: "key of " + object, ArgsDigest: "args of " + object, ObjectID: object}
}

func (t test) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (t test) wantErr(err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func (t test) stage(o files.Object) {
	t.Helper()
	t.must(t.StageObject(t.Context(), o, later, quota))
}

func stagedHidden(t test) {
	t.stage(object("obj", 10))
	_, err := t.Object(t.Context(), "obj")
	t.wantErr(err, files.ErrNoObject)
	_, err = t.Completed(t.Context(), "slot")
	t.wantErr(err, files.ErrNoCompletion)
}

func completed(t test) {
	want := object("obj", 10)
	t.stage(want)
	stands, err := t.Complete(t.Context(), completion("slot", "obj"))
	t.must(err)
	read, err := t.Completed(t.Context(), "slot")
	t.must(err)
	if stands != completion("slot", "obj") || read != stands {
		t.Errorf("got %+v and %+v", stands, read)
	}
	if got, err := t.Object(t.Context(), "obj"); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func sealed(t test) {
	t.stage(object("obj", 90))
	want := object("obj", 10)
	want.Info.SHA256, want.Info.MIME = sha256.Sum256([]byte("other")), "image/png"
	t.must(t.SealObject(t.Context(), "obj", want.Info))
	t.stage(object("another", 90)) // what it turned out not to need is free
	t.wantErr(t.StageObject(t.Context(), object("third", 1), later, quota), files.ErrQuota)
	_, err := t.Complete(t.Context(), completion("slot", "obj"))
	t.must(err)
	if got, err := t.Object(t.Context(), "obj"); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	t.wantErr(t.SealObject(t.Context(), "obj", object("obj", 1).Info), files.ErrNoObject)
	t.wantErr(t.SealObject(t.Context(), "none", object("obj", 1).Info), files.ErrNoObject)
	if got, err := t.Object(t.Context(), "obj"); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}

func takenOnce(t test) {
	t.stage(object("first", 10))
	t.stage(object("second", 10))
	first, err := t.Complete(t.Context(), completion("slot", "first"))
	t.must(err)
	for range 2 {
		second, err := t.Complete(t.Context(), completion("slot", "second"))
		if err != nil || second != first {
			t.Errorf("got %+v, %v, want %+v", second, err, first)
		}
	}
	again, err := t.Complete(t.Context(), completion("slot", "first"))
	if err != nil || again != first {
		t.Errorf("got %+v, %v", again, err)
	}
	_, err = t.Object(t.Context(), "second")
	t.wantErr(err, files.ErrNoObject)
}

func oneTakes(t test) {
	const many = 4
	for n := range many {
		t.stage(object(fmt.Sprint("obj", n), 1))
	}
	stands := make([]files.Completion, many)
	var wg sync.WaitGroup
	for n := range many {
		wg.Go(func() {
			var err error
			if stands[n], err = t.Complete(t.Context(), completion("slot", fmt.Sprint("obj", n))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	visible := 0
	for n := range many {
		if stands[n] != stands[0] {
			t.Errorf("two took one slot: %+v and %+v", stands[0], stands[n])
		}
		if _, err := t.Object(t.Context(), fmt.Sprint("obj", n)); err == nil {
			visible++
		}
	}
	if visible != 1 {
		t.Errorf("%d objects are visible", visible)
	}
}

func completeMissing(t test) {
	_, err := t.Complete(t.Context(), completion("slot", "obj"))
	t.wantErr(err, files.ErrNoObject)
	_, err = t.Completed(t.Context(), "slot")
	t.wantErr(err, files.ErrNoCompletion)
	// A visible object does not take a second slot.
	t.stage(object("obj", 10))
	_, err = t.Complete(t.Context(), completion("slot", "obj"))
	t.must(err)
	_, err = t.Complete(t.Context(), completion("other slot", "obj"))
	t.wantErr(err, files.ErrNoObject)
}

func dropVisible(t test) {
	t.stage(object("obj", 10))
	_, err := t.Complete(t.Context(), completion("slot", "obj"))
	t.must(err)
	if dropped, err := t.DropObject(t.Context(), "obj"); err != nil || dropped {
		t.Errorf("got %v, %v", dropped, err)
	}
	_, err = t.Object(t.Context(), "obj")
	t.must(err)
}

func dropStaged(t test) {
	t.stage(object("obj", 10))
	for n := range 2 {
		if dropped, err := t.DropObject(t.Context(), "obj"); err != nil || dropped != (n == 0) {
			t.Errorf("drop %d: got %v, %v", n, dropped, err)
		}
	}
	_, err := t.Complete(t.Context(), completion("slot", "obj"))
	t.wantErr(err, files.ErrNoObject)
}

func quotaStaged(t test) {
	t.stage(object("staged", 60))
	t.wantErr(t.StageObject(t.Context(), object("too much", 41), later, quota), files.ErrQuota)
	t.stage(object("just enough", 40))
	dropped, err := t.DropObject(t.Context(), "staged")
	if err != nil || !dropped {
		t.Fatal(dropped, err)
	}
	t.stage(object("in its place", 60))
}

func quotaForgets(t test) {
	t.stage(object("left behind", 60))
	t.stage(object("kept", 40))
	_, err := t.Complete(t.Context(), completion("slot", "kept"))
	t.must(err)
	q := quota
	q.Now = later
	t.wantErr(t.StageObject(t.Context(), object("too much", 61), later.Add(time.Hour), q), files.ErrQuota)
	t.must(t.StageObject(t.Context(), object("enough", 60), later.Add(time.Hour), q))
}

func quotaObjects(t test) {
	for n := range quota.Objects {
		t.stage(object(fmt.Sprint("obj", n), 0))
	}
	t.wantErr(t.StageObject(t.Context(), object("one more", 0), later, quota), files.ErrQuota)
}

func quotaPerBinding(t test) {
	t.stage(object("obj", 100))
	other := object("other", 100)
	other.BindingID = "hs_2"
	t.stage(other)
	epoch := object("other epoch", 1) // a cleared conversation is the same binding
	epoch.Epoch = 2
	t.wantErr(t.StageObject(t.Context(), epoch, later, quota), files.ErrQuota)
}

func quotaConcurrent(t test) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	staged := 0
	for n := range 16 {
		wg.Go(func() {
			err := t.StageObject(t.Context(), object(fmt.Sprint("obj", n), 40), later, quota)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				staged++
			case !errors.Is(err, files.ErrQuota):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if staged != 2 {
		t.Errorf("%d objects of 40 bytes fit into 100", staged)
	}
}

func handle(id, issue string) files.Handle {
	return files.Handle{
		ID: id, BindingID: "hs_1", Epoch: 1, Generation: 2, RunID: "run", Direction: files.DirectionUpload,
		ObjectID: "obj", MaxBytes: 7, ExpiresAt: later, Issue: issue, ArgsDigest: "args of " + id,
	}
}

func handleHidden(t test) {
	_, err := t.StageHandle(t.Context(), handle("fh", "issue"), 4)
	t.must(err)
	_, err = t.Handle(t.Context(), "fh")
	t.wantErr(err, files.ErrNoHandle)
}

func handleConfirmed(t test) {
	want := handle("fh", "issue")
	stands, err := t.StageHandle(t.Context(), want, 4)
	t.must(err)
	for range 2 {
		t.must(t.ConfirmHandle(t.Context(), "fh"))
	}
	got, err := t.Handle(t.Context(), "fh")
	if err != nil || got != want || stands != want {
		t.Errorf("got %+v and %+v, %v", stands, got, err)
	}
}

func oneIssue(t test) {
	first, err := t.StageHandle(t.Context(), handle("first", "issue"), 4)
	t.must(err)
	second, err := t.StageHandle(t.Context(), handle("second", "issue"), 4)
	if err != nil || second != first {
		t.Errorf("got %+v, %v", second, err)
	}
}

func handleDrop(t test) {
	for _, id := range []string{"staged", "confirmed"} {
		_, err := t.StageHandle(t.Context(), handle(id, id), 4)
		t.must(err)
	}
	t.must(t.ConfirmHandle(t.Context(), "confirmed"))
	t.must(t.DropHandle(t.Context(), "confirmed"))
	t.must(t.DropHandle(t.Context(), "staged"))
	t.wantErr(t.ConfirmHandle(t.Context(), "staged"), files.ErrNoHandle)
	_, err := t.Handle(t.Context(), "confirmed")
	t.must(err)
}

func handleBound(t test) {
	for n := range 4 {
		_, err := t.StageHandle(t.Context(), handle(fmt.Sprint("fh", n), fmt.Sprint("issue", n)), 4)
		t.must(err)
	}
	_, err := t.StageHandle(t.Context(), handle("one more", "one more"), 4)
	t.wantErr(err, files.ErrFull)
	_, err = t.StageHandle(t.Context(), handle("again", "issue0"), 4)
	t.must(err)
	other := handle("other run", "other run")
	other.RunID = "other"
	_, err = t.StageHandle(t.Context(), other, 4)
	t.must(err)
}

func handleMissing(t test) {
	t.wantErr(t.ConfirmHandle(t.Context(), "fh"), files.ErrNoHandle)
	t.must(t.DropHandle(t.Context(), "fh"))
}
