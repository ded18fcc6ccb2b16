package rpc_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/statefacade/internal/threadstate"
	"cofferdam.dev/services/statefacade/internal/threadstate/snapshotstore"
)

// onEachStore runs a test on both back ends of the snapshot store.
func onEachStore(t *testing.T, f func(t *testing.T, o *opened)) {
	t.Helper()
	for name, store := range map[string]func(t *testing.T) (snapshotstore.Store, error){
		"SQLite": func(t *testing.T) (snapshotstore.Store, error) {
			t.Helper()
			return snapshotstore.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "snapshots.db"))
		},
		"MongoDB": func(t *testing.T) (snapshotstore.Store, error) {
			t.Helper()
			return snapshotstore.OpenMongoDB(t.Context(), mongodbstoretest.Open(t, mongodbstoretest.Server(t)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, rpctest.NewStand(t))
			snapshots, err := store(t)
			must(t, err)
			t.Cleanup(func() { must(t, snapshots.Close()) })
			o.hooks.Snapshots = snapshots
			f(t, o)
		})
	}
}

// going is a snapshot store whose database goes after so many writes.
type going struct {
	threadstate.Snapshots
	left atomic.Int64
}

func (g *going) Stage(ctx context.Context, s threadstate.Snapshot, most int) (threadstate.Entry, error) {
	if g.left.Add(-1) < 0 {
		return threadstate.Entry{}, errLost
	}
	return g.Snapshots.Stage(ctx, s, most)
}

func (g *going) Confirm(ctx context.Context, ref string) error {
	if g.left.Add(-1) < 0 {
		return errLost
	}
	return g.Snapshots.Confirm(ctx, ref)
}

func (g *going) Drop(ctx context.Context, ref string) error {
	if g.left.Load() < 0 {
		return errLost
	}
	return g.Snapshots.Drop(ctx, ref)
}

// in gives content in chunks and then ends as it is told to.
func in(content string, last error) blob.Parts {
	return func() ([]byte, error) {
		if content == "" {
			return nil, last
		}
		n := min(len(content), blob.MaxChunkBytes)
		chunk := content[:n]
		content = content[n:]
		return []byte(chunk), nil
	}
}

// Each bad input has its code, on both stores, and nothing of it can be met; the same
// request succeeds once what was wrong is mended.
func TestBadSnapshots(t *testing.T) {
	broken := errors.New("the stream broke")
	large := largeState(threadstate.MaxInlineBytes + 1)
	codec := threadstate.Codec{Name: "native", Version: 1}
	type bad struct {
		content blob.Content
		parts   func() blob.Parts
		// room of the disk, and writes after which the database goes; 0 is enough.
		room, writes int
		code         fault.Code
	}
	for size, payload := range map[string]string{"small": "state", "large": large} {
		is := blob.Of([]byte(payload))
		wrong, short, long := is, is, is
		wrong.SHA256[0]++
		short.Size--
		long.Size++
		whole := func() blob.Parts { return in(payload, io.EOF) }
		cases := map[string]bad{
			"too large":                  {content: blob.Content{Size: threadstate.MaxSnapshotBytes + 1}, parts: whole, code: fault.StateTooLarge},
			"empty":                      {content: blob.Of(nil), parts: whole, code: fault.InvalidRequest},
			"wrong hash":                 {content: wrong, parts: whole, code: fault.InvalidRequest},
			"more than announced":        {content: short, parts: whole, code: fault.InvalidRequest},
			"less than announced":        {content: long, parts: whole, code: fault.InvalidRequest},
			"truncated stream":           {content: is, parts: func() blob.Parts { return in(payload[:len(payload)-1], broken) }, code: fault.Internal},
			"database gone":              {content: is, parts: whole, writes: 1, code: fault.PersistenceFailed},
			"database gone in mid-write": {content: is, parts: whole, writes: 2, code: fault.PersistenceFailed},
		}
		if payload == large {
			cases["disk full"] = bad{content: is, parts: whole, room: threadstate.MaxInlineBytes, code: fault.PersistenceFailed}
		}
		t.Run(size, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, o *opened) {
				store := o.hooks.Snapshots
				var ref string
				for name, c := range cases {
					e := o.stand.Envelope()
					e.IdempotencyKey = name
					before := o.refOf(t, store)
					o.blobs.room = c.room
					if c.writes > 0 {
						g := &going{Snapshots: store}
						g.left.Store(int64(c.writes - 1))
						o.hooks.Snapshots = g
					}
					_, err := o.thread().WriteSnapshot(t.Context(), o.stand.Grant(t, e), codec, c.content, c.parts())
					wantCode(t, err, c.code)
					o.blobs.room, o.hooks.Snapshots = 0, store
					if after := o.refOf(t, store); after != before {
						t.Errorf("%s, %d bytes: %q can be met, before it was %q", name, len(payload), after, before)
					}
					ref, err = o.thread().WriteSnapshot(t.Context(), o.stand.Grant(t, e), codec, is, whole())
					must(t, err)
				}
				o.badCommits(t, ref, codec)
				_, err := o.thread().CommitHead(t.Context(), o.stand.Grant(t, o.stand.Envelope()), threadstate.Commit{Codec: codec, Ref: ref})
				must(t, err)
				h, err := o.loadedHead(t)
				must(t, err)
				if h != payload {
					t.Errorf("%d bytes came back otherwise", len(payload))
				}
			})
		})
	}
}

// refOf is what a caller can meet: the snapshots that are confirmed.
func (o *opened) refOf(t *testing.T, store threadstate.Snapshots) (refs string) {
	t.Helper()
	all, err := store.List(t.Context(), o.stand.Envelope().BindingID)
	must(t, err)
	for _, e := range all {
		if _, err := store.Stat(t.Context(), e.Ref); err == nil {
			refs += e.Ref + " "
		}
	}
	return refs
}

// badCommits sees that no wrong commit moves the head.
func (o *opened) badCommits(t *testing.T, ref string, codec threadstate.Codec) {
	t.Helper()
	other := o.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	for name, c := range map[string]struct {
		stand  *rpctest.Stand
		commit threadstate.Commit
		code   fault.Code
	}{
		"no such snapshot":            {o.stand, threadstate.Commit{Codec: codec, Ref: "snap_none"}, fault.NotFound},
		"snapshot of another binding": {other, threadstate.Commit{Codec: codec, Ref: ref}, fault.NotFound},
		"another codec":               {o.stand, threadstate.Commit{Codec: threadstate.Codec{Name: "native", Version: 2}, Ref: ref}, fault.InvalidRequest},
		"another revision":            {o.stand, threadstate.Commit{Codec: codec, Ref: ref, Expected: 7}, fault.RevisionConflict},
	} {
		_, err := o.thread().CommitHead(t.Context(), c.stand.Grant(t, c.stand.Envelope()), c.commit)
		if fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if r := c.stand.Record(t); r.Head.Revision != 0 {
			t.Errorf("%s: the head moved", name)
		}
	}
}

// loadedHead is the payload of the head.
func (o *opened) loadedHead(t *testing.T) (payload string, err error) {
	t.Helper()
	o.stand.EndRun(t)
	o.stand.StartRun(t, "run_that_loads")
	err = o.thread().LoadHead(t.Context(), o.stand.Grant(t, o.stand.Envelope()), threadstate.Adapter{Harness: "native", Version: "1"},
		threadstate.Codec{Name: "native", Version: 1}, func(_ *threadstate.Head, chunk []byte) error {
			payload += string(chunk)
			return nil
		})
	return payload, err
}
