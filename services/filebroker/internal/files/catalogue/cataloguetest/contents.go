package cataloguetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/services/filebroker/internal/files"
)

type sum = [sha256.Size]byte

func content(text, id string) files.Content {
	return files.Content{Content: blob.Of([]byte(text)), BlobID: id, PutAt: now}
}

func sumOf(text string) sum { return sha256.Sum256([]byte(text)) }

func contents(t test) {
	_, err := t.Content(t.Context(), sumOf("a"))
	t.wantErr(err, files.ErrNoContent)
	_, err = t.PutAgain(t.Context(), sumOf("a"), later)
	t.wantErr(err, files.ErrNoContent)
	first := content("a", "first")
	if got, err := t.AddContent(t.Context(), first); err != nil || got != first {
		t.Errorf("got %+v, %v", got, err)
	}
	second := content("a", "second")
	second.PutAt = later
	first.PutAt = later
	if got, err := t.AddContent(t.Context(), second); err != nil || got != first {
		t.Errorf("got %+v, %v", got, err)
	}
	// A clock that is behind takes nothing away.
	if got, err := t.PutAgain(t.Context(), sumOf("a"), now); err != nil || got != first {
		t.Errorf("got %+v, %v", got, err)
	}
	first.PutAt = later.Add(time.Minute)
	if got, err := t.PutAgain(t.Context(), sumOf("a"), first.PutAt); err != nil || got != first {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := t.Content(t.Context(), sumOf("a")); err != nil || got != first {
		t.Errorf("got %+v, %v", got, err)
	}
}

func oneContent(t test) {
	const many = 4
	stands := make([]files.Content, many)
	var wg sync.WaitGroup
	for n := range many {
		wg.Go(func() {
			var err error
			if stands[n], err = t.AddContent(t.Context(), content("a", fmt.Sprint(n))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range stands {
		if s != stands[0] {
			t.Errorf("two stand: %+v and %+v", s, stands[0])
		}
	}
}

func unusedContents(t test) {
	for n, text := range []string{"a", "b", "c", "used"} {
		c := content(text, text)
		c.PutAt = now.Add(time.Duration(n) * time.Minute)
		_, err := t.AddContent(t.Context(), c)
		t.must(err)
	}
	t.wantErr(t.ReferContents(t.Context(), []sum{sumOf("used"), sumOf("none")}), files.ErrNoContent)
	for range 2 {
		t.must(t.ReferContents(t.Context(), []sum{sumOf("used")}))
	}
	t.must(t.ReferContents(t.Context(), nil))
	before := now.Add(2 * time.Minute) // "c" was put then, and not before
	found := func(limit int) map[string]bool {
		t.Helper()
		all, err := t.UnusedContents(t.Context(), before, limit)
		t.must(err)
		out := map[string]bool{}
		for _, c := range all {
			out[c.BlobID] = true
		}
		return out
	}
	if got := found(10); len(got) != 2 || !got["a"] || !got["b"] {
		t.Errorf("unused: %v", got)
	}
	if got := found(1); len(got) != 1 {
		t.Errorf("unused: %v", got)
	}
	for _, c := range []struct {
		text string
		want bool
	}{{"a", true}, {"a", false}, {"c", false}, {"used", false}, {"none", false}} {
		if got, err := t.RetireContent(t.Context(), sumOf(c.text), before); err != nil || got != c.want {
			t.Errorf("%s is retired: %v, %v", c.text, got, err)
		}
	}
	_, err := t.PutAgain(t.Context(), sumOf("b"), before)
	t.must(err)
	if got := found(10); len(got) != 0 {
		t.Errorf("unused after it was put again: %v", got)
	}
	_, err = t.Content(t.Context(), sumOf("a"))
	t.wantErr(err, files.ErrNoContent)
	// What was removed can be put as if it had never been there.
	if got, err := t.AddContent(t.Context(), content("a", "anew")); err != nil || got != content("a", "anew") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func keepOrCollect(t test) {
	for n := range 8 {
		text := fmt.Sprint("text ", n)
		_, err := t.AddContent(t.Context(), content(text, text))
		t.must(err)
		var kept error
		var gone bool
		var wg sync.WaitGroup
		wg.Go(func() { kept = t.ReferContents(t.Context(), []sum{sumOf(text)}) })
		wg.Go(func() {
			var err error
			if gone, err = t.RetireContent(t.Context(), sumOf(text), later); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		_, err = t.Content(t.Context(), sumOf(text))
		if gone != errors.Is(kept, files.ErrNoContent) || gone != errors.Is(err, files.ErrNoContent) || !gone && kept != nil {
			t.Errorf("it is retired: %v, kept: %v, and found: %v", gone, kept, err)
		}
	}
}

func handleContents(t test) {
	a, b := sumOf("a"), sumOf("b")
	h := files.Handle{ID: "h", BindingID: "hs_1", Epoch: 1, Generation: 1, RunID: "run", Direction: files.DirectionDownload, Contents: string(a[:]) + string(b[:]), ExpiresAt: later, Issue: "i"}
	if got, err := t.StageHandle(t.Context(), h, 4); err != nil || got != h {
		t.Errorf("got %+v, %v", got, err)
	}
	t.must(t.ConfirmHandle(t.Context(), "h"))
	if got, err := t.Handle(t.Context(), "h"); err != nil || got != h {
		t.Errorf("got %+v, %v", got, err)
	}
}
