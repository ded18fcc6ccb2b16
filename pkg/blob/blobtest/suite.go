// Package blobtest has the suite that every back end of blob stores must pass.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"testing"
	"time"

	"cofferdam.dev/pkg/blob"
)

const key = "objects/digest/obj_1"

// test is one case on one store.
type test struct {
	*testing.T
	blob.Store
}

// Run runs the suite. open gives an empty store for each case.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	t.Helper()
	for name, f := range map[string]func(test){
		"what is not there":                missing,
		"committed comes back":             committed,
		"empty":                            empty,
		"not there before commit":          beforeCommit,
		"aborted is not there":             aborted,
		"context ended before the commit":  ended,
		"one does not hide behind another": apart,
		"deleted is not there":             deleted,
		"a part from an offset on":         ranges,
		"the last of two stands":           replaced,
		"what is no key":                   noKey,
		"all of a folder are told":         each,
	} {
		t.Run(name, func(t *testing.T) { f(test{t, open(t)}) })
	}
}

func (t test) write(key string, parts ...[]byte) {
	t.Helper()
	w := t.create(t.Context(), key)
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

func (t test) create(ctx context.Context, key string) blob.Writer {
	t.Helper()
	w, err := t.Create(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (t test) read() []byte { return t.readFrom(0) }

func (t test) readFrom(offset int64) []byte {
	t.Helper()
	r, err := t.Open(t.Context(), key, offset)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return content
}

func (t test) absent(key string) {
	t.Helper()
	r, err := t.Open(t.Context(), key, 0)
	if err == nil {
		_ = r.Close()
	}
	if !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("%s: got %v, want ErrNotFound", key, err)
	}
}

func missing(t test) {
	t.absent(key)
	if err := t.Delete(t.Context(), key); err != nil {
		t.Error(err)
	}
}

func committed(t test) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	t.write(key, []byte("a"), large, nil, []byte("z"))
	want := append(append([]byte("a"), large...), 'z')
	if got := t.read(); !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back otherwise, as %d", len(want), len(got))
	}
}

func empty(t test) {
	t.write(key)
	if got := t.read(); len(got) != 0 {
		t.Errorf("got %q", got)
	}
}

func beforeCommit(t test) {
	w := t.create(t.Context(), key)
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	t.absent(key)
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := t.read(); len(got) != 1<<20 {
		t.Errorf("%d bytes", len(got))
	}
}

func aborted(t test) {
	w := t.create(t.Context(), key)
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	t.absent(key)
}

func ended(t test) {
	ctx, cancel := context.WithCancel(t.Context())
	w := t.create(ctx, key)
	if _, err := w.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Commit(); err == nil {
		t.Error("it was committed")
	}
	t.absent(key)
}

func apart(t test) {
	t.write(key, []byte("one"))
	t.write(key+"2", []byte("two"))
	t.absent("objects/digest")
	t.absent("objects/digest/obj_")
	if got := t.read(); string(got) != "one" {
		t.Errorf("got %q", got)
	}
}

func deleted(t test) {
	t.write(key, []byte("content"))
	for range 2 {
		if err := t.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	t.absent(key)
}

func ranges(t test) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	t.write(key, content)
	for _, offset := range []int64{0, 1, 15, 4096, int64(len(content)) - 1, int64(len(content)), int64(len(content)) + 1} {
		want := content[min(offset, int64(len(content))):]
		if got := t.readFrom(offset); !bytes.Equal(got, want) {
			t.Errorf("from %d on %d bytes came back, want %d", offset, len(got), len(want))
		}
	}
}

func replaced(t test) {
	first, second := t.create(t.Context(), key), t.create(t.Context(), key)
	for content, w := range map[string]blob.Writer{"first": first, "second": second} {
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(first.Commit(), second.Commit()); err != nil {
		t.Fatal(err)
	}
	if got := t.read(); string(got) != "second" {
		t.Errorf("got %q", got)
	}
}

func each(t test) {
	before := time.Now().Add(-time.Hour) // the clock is the store's
	want := map[string]bool{}
	for _, k := range []string{key, key + "2", "objects/another/obj_1", "parts/digest/obj_1/a"} {
		t.write(k, []byte(k))
		want[k] = true
	}
	t.write("object", []byte("beside"))
	t.write("objects2/digest/obj_1", []byte("beside"))
	w := t.create(t.Context(), "objects/digest/not_yet")
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, folder := range []string{"objects", "parts", "none"} {
		err := t.Each(t.Context(), folder, func(e blob.Entry) error {
			if got[e.Key] || e.Written.Before(before) {
				t.Errorf("%s was told twice, or is of %v", e.Key, e.Written)
			}
			got[e.Key] = true
			return t.Delete(t.Context(), e.Key) // as who collects does
		})
		if err != nil {
			t.Error(err)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	t.write(key, []byte("content"))
	stop := errors.New("enough")
	if err := t.Each(t.Context(), "objects", func(blob.Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := t.Each(ctx, "objects", func(blob.Entry) error { return nil }); err == nil {
		t.Error("it did not end with its context")
	}
}

func noKey(t test) {
	for _, key := range []string{"", "/", "..", "../up", "a/../b", "a//b", "/a", "a/", ".", "a/.", "a\\b", "a\x00", "a b", "C:", "\u202e", string(make([]byte, 600))} {
		if w, err := t.Create(t.Context(), key); err == nil {
			t.Errorf("%q was created: %v", key, w.Abort())
		}
		if r, err := t.Open(t.Context(), key, 0); err == nil {
			t.Errorf("%q was opened: %v", key, r.Close())
		}
		if err := t.Delete(t.Context(), key); err == nil {
			t.Errorf("%q was deleted", key)
		}
	}
}
