package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/catalogue"
	"cofferdam.dev/services/filebroker/internal/files/catalogue/mongostore"
)

// world is the domain of a file broker without its wires, on stores that outlive it.
type world struct {
	stand   *rpctest.Stand
	entries files.Catalogue
	blobs   blob.Store
}

// onEachStore runs a test on both back ends of the catalogue.
func onEachStore(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	run := func(name string, open func(t *testing.T) files.Catalogue) {
		t.Run(name, func(t *testing.T) {
			w := &world{stand: rpctest.NewStand(t), entries: open(t)}
			bucket, err := blobstore.Open(t.Context(), blobstore.Address{URL: "file://" + filepath.Join(t.TempDir(), "files")})
			must(t, err)
			t.Cleanup(func() { must(t, bucket.Close()) })
			w.blobs = bucket
			f(t, w)
		})
	}
	run("SQLite", func(t *testing.T) files.Catalogue {
		t.Helper()
		s, err := catalogue.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "handles.db"))
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		return s
	})
	run("MongoDB", func(t *testing.T) files.Catalogue {
		t.Helper()
		s, err := mongostore.Open(t.Context(), mongodbstoretest.Open(t, mongodbstoretest.Server(t)))
		must(t, err)
		t.Cleanup(func() { must(t, s.Close()) })
		return s
	})
}

// service is a process on the stores, at a time from now.
func (w *world) service(entries files.Catalogue, blobs blob.Store, ahead time.Duration) *files.Service {
	writer := binding.NewWriter(w.stand.Backend, time.Now)
	return files.New(files.Config{
		Guard: fence.NewGuard(writer, time.Now), Effects: binding.NewEffects(writer), Records: writer, Catalogue: entries, Blobs: blobs,
		QuotaBytes: 1 << 30, CollectAfter: collectAfter, Logger: w.stand.Logger, Now: func() time.Time { return time.Now().Add(ahead) },
	})
}

// now is a process that nothing happens to.
func (w *world) now() *files.Service { return w.service(w.entries, w.blobs, 0) }

// collect is the collection of another process, some time later.
func (w *world) collect(t *testing.T, later time.Duration) files.Collected {
	t.Helper()
	c, err := w.service(w.entries, w.blobs, later).Collect(t.Context())
	must(t, err)
	return c
}

// stored stores a file by itself.
func (w *world) stored(ctx context.Context, s *files.Service, g fence.Grant, content string) (files.Object, error) {
	return w.sent(ctx, s, g, content, blob.Of([]byte(content)))
}

// sent is stored for a content of which its sender says what it is.
func (w *world) sent(ctx context.Context, s *files.Service, g fence.Grant, content string, is blob.Content) (files.Object, error) {
	rest := []byte(content)
	return s.PutFile(ctx, g, files.Head{MIME: "text/plain", Name: "a", MaxBytes: int64(len(rest))}, func() ([]byte, error) {
		if len(rest) == 0 {
			return nil, io.EOF
		}
		n := min(len(rest), blob.MaxChunkBytes)
		part := rest[:n]
		rest = rest[n:]
		return part, nil
	}, func() (blob.Content, bool) { return is, true })
}

func whole(content string) files.Info {
	return files.Info{Content: blob.Of([]byte(content)), MIME: "text/plain", Name: "a"}
}

// once gives content as one part, of at most blob.MaxChunkBytes.
func once(content string) blob.Parts {
	gave := false
	return func() ([]byte, error) {
		if gave {
			return nil, io.EOF
		}
		gave = true
		return []byte(content), nil
	}
}

// handle is one for an upload or, of an object, for a download.
func (w *world) handle(t *testing.T, object string) string {
	t.Helper()
	is := files.Issue{Direction: files.DirectionUpload, MaxBytes: 1 << 20, ExpiresAt: time.Now().Add(time.Minute)}
	if object != "" {
		is = files.Issue{Direction: files.DirectionDownload, ObjectID: object, ExpiresAt: is.ExpiresAt}
	}
	id, err := w.now().Issue(t.Context(), w.stand.Grant(t, w.stand.Envelope()), is)
	must(t, err)
	return id
}

// consistent fails unless each blob is that of a visible object that can be read, and
// nothing else is left.
func (w *world) consistent(t *testing.T, when string) (objects map[string]bool) {
	t.Helper()
	entries, err := w.entries.Entries(t.Context(), "", 1000)
	must(t, err)
	objects = map[string]bool{}
	for _, e := range entries {
		o, err := w.now().Stat(t.Context(), e.ID)
		if err != nil {
			t.Errorf("%s: an entry of an object that is not visible is left: %v", when, err)
			continue
		}
		var got bytes.Buffer
		if err := w.now().Read(t.Context(), o.BindingID, o.ID, files.Range{}, func(b []byte) error { got.Write(b); return nil }); err != nil || blob.Of(got.Bytes()) != o.Info.Content {
			t.Errorf("%s: a visible object cannot be read: %v", when, err)
		}
		objects[o.ID] = true
	}
	for _, folder := range []string{"objects", "parts"} {
		must(t, w.blobs.Each(t.Context(), folder, func(e blob.Entry) error {
			if folder == "parts" || !objects[filepath.Base(e.Key)] {
				t.Errorf("%s: a blob is left that nobody knows: %s", when, e.Key)
			}
			return nil
		}))
	}
	return objects
}

// What something refers to stays, and what nothing refers to goes, each at its time.
func TestWhatIsCollected(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		s, g := w.now(), w.stand.Grant(t, w.stand.Envelope())
		brought, err := s.Put(t.Context(), g, whole("brought"), once("brought"))
		must(t, err)
		given, err := w.stored(t.Context(), s, g, "given")
		must(t, err)
		w.handle(t, given.ID)
		unused, err := w.stored(t.Context(), s, g, "unused")
		must(t, err)

		if c := w.collect(t, collectAfter-time.Hour); c != (files.Collected{}) {
			t.Errorf("before its time %+v went", c)
		}
		if c := w.collect(t, collectAfter+time.Hour); c != (files.Collected{Objects: 1}) {
			t.Errorf("%+v went", c)
		}
		if left := w.consistent(t, "unused"); len(left) != 2 || left[unused.ID] {
			t.Errorf("left is %v", left)
		}
		_, err = s.Issue(t.Context(), g, files.Issue{Direction: files.DirectionDownload, ObjectID: unused.ID, ExpiresAt: time.Now().Add(time.Minute)})
		wantCode(t, err, fault.NotFound)

		rec := w.stand.Record(t)
		_, err = w.stand.Writer.Clear(t.Context(), rec.ID, rec.Epoch, rec.Generation, func(g uint32) string { return binding.ClaimName(rec.ID, g) }, "default")
		must(t, err)
		if c := w.collect(t, collectAfter+time.Hour); c != (files.Collected{Objects: 2}) {
			t.Errorf("after a clear %+v went", c)
		}
		if left := w.consistent(t, "cleared"); len(left) != 0 {
			t.Errorf("left is %v", left)
		}
		_, err = s.Stat(t.Context(), brought)
		wantCode(t, err, fault.NotFound)
	})
}

var errKilled = errors.New("the process was killed")

// life counts the writes of a process, and ends it after some.
type life struct{ left atomic.Int64 }

func (l *life) step() error {
	if l.left.Add(-1) < 0 {
		return errKilled
	}
	return nil
}

// mortal is a catalogue of a process that is killed between two writes.
type mortal struct {
	files.Catalogue
	*life
}

func (m mortal) StageObject(ctx context.Context, o files.Object, until time.Time, q files.Quota) error {
	if err := m.step(); err != nil {
		return err
	}
	return m.Catalogue.StageObject(ctx, o, until, q)
}

func (m mortal) SealObject(ctx context.Context, id string, i files.Info) error {
	if err := m.step(); err != nil {
		return err
	}
	return m.Catalogue.SealObject(ctx, id, i)
}

func (m mortal) Complete(ctx context.Context, c files.Completion) (files.Completion, error) {
	if err := m.step(); err != nil {
		return files.Completion{}, err
	}
	return m.Catalogue.Complete(ctx, c)
}

func (m mortal) DropObject(ctx context.Context, id string) (bool, error) {
	if err := m.step(); err != nil {
		return false, err
	}
	return m.Catalogue.DropObject(ctx, id)
}

func (m mortal) BeginUpload(ctx context.Context, u files.PartialUpload) (files.PartialUpload, error) {
	if err := m.step(); err != nil {
		return files.PartialUpload{}, err
	}
	return m.Catalogue.BeginUpload(ctx, u)
}

func (m mortal) AppendPart(ctx context.Context, u files.PartialUpload, p files.Part) (files.PartialUpload, error) {
	if err := m.step(); err != nil {
		return files.PartialUpload{}, err
	}
	return m.Catalogue.AppendPart(ctx, u, p)
}

func (m mortal) EndUpload(ctx context.Context, handle string) error {
	if err := m.step(); err != nil {
		return err
	}
	return m.Catalogue.EndUpload(ctx, handle)
}

func (m mortal) Retire(ctx context.Context, id string, unused bool) (bool, error) {
	if err := m.step(); err != nil {
		return false, err
	}
	return m.Catalogue.Retire(ctx, id, unused)
}

func (m mortal) ForgetExpired(ctx context.Context, before time.Time) error {
	if err := m.step(); err != nil {
		return err
	}
	return m.Catalogue.ForgetExpired(ctx, before)
}

// mortalBlobs is the same of a store of blobs.
type mortalBlobs struct {
	blob.Store
	*life
}

func (m mortalBlobs) Create(ctx context.Context, key string) (blob.Writer, error) {
	if err := m.step(); err != nil {
		return nil, err
	}
	w, err := m.Store.Create(ctx, key)
	return mortalWriter{w, m.life}, err
}

func (m mortalBlobs) Delete(ctx context.Context, key string) error {
	if err := m.step(); err != nil {
		return err
	}
	return m.Store.Delete(ctx, key)
}

type mortalWriter struct {
	blob.Writer
	*life
}

func (m mortalWriter) Commit() error {
	if err := m.step(); err != nil {
		return errors.Join(err, m.Abort()) // the folder's own files are tidied elsewhere
	}
	return m.Writer.Commit()
}

// A process that is killed between any two of its writes, while it stores, uploads in
// parts, fails to, or collects, leaves nothing that the next collections do not
// remove, and nothing that was acknowledged is lost.
func TestAKillBetweenAnyTwoWrites(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		content := large(t, 2*blob.MaxChunkBytes)
		first, second := content[:blob.MaxChunkBytes], content[blob.MaxChunkBytes:]
		kills := 0
		kept := map[string]bool{}
		for left := int64(0); ; left++ {
			l := &life{}
			l.left.Store(left)
			s := w.service(mortal{w.entries, l}, mortalBlobs{w.blobs, l}, 0)
			collector := w.service(mortal{w.entries, l}, mortalBlobs{w.blobs, l}, collectAfter+2*time.Hour)
			g := w.stand.Grant(t, w.stand.Envelope())

			if _, err := w.stored(t.Context(), s, g, "unused"); err == nil {
				_, _ = w.sent(t.Context(), s, g, "refused", blob.Of([]byte("another")))
			}
			handle := w.handle(t, "")
			c := func() files.Caller {
				return files.Caller{Grant: w.stand.Grant(t, w.stand.Envelope()), Handles: []string{handle}}
			}
			_, err := s.UploadPart(t.Context(), c(), handle, files.NewPart{Content: blob.Of([]byte(first)), Whole: whole(content)}, once(first))
			if err == nil {
				_, err = s.UploadPart(t.Context(), c(), handle, files.NewPart{Content: blob.Of([]byte(second)), Offset: int64(len(first)), Whole: whole(content)}, once(second))
			}
			if err == nil {
				if up, err := s.CompleteUpload(t.Context(), c(), handle); err == nil {
					kept[up.ObjectID] = true
				}
			}
			_, _ = collector.Collect(t.Context())

			w.collect(t, collectAfter+3*time.Hour)
			objects := w.consistent(t, "killed")
			for id := range kept {
				if !objects[id] {
					t.Errorf("after %d writes: an acknowledged upload is lost", left)
				}
			}
			if t.Failed() {
				t.Fatalf("killed after %d writes", left)
			}
			if l.left.Load() >= 0 {
				break // it lived
			}
			kills++
		}
		if kills < 20 {
			t.Errorf("there were %d places to kill it", kills)
		}
	})
}
