package rpc_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/filebroker/internal/files"
	"cofferdam.dev/services/filebroker/internal/files/catalogue"
	"cofferdam.dev/services/filebroker/internal/rpc"
)

// quotaOfTests is small enough to be used up.
const quotaOfTests = 4 << 20

// collectAfter is how long tests keep what nothing refers to.
const collectAfter = 24 * time.Hour

// opened is a real file broker on a Stand.
type opened struct {
	stand   *rpctest.Stand
	handler http.Handler
	files   *files.Service
	hooks   *hooks
	disk    *disk
	path    string // of the catalogue
	dir     string // of the blobs
	// started and ended count requests.
	started, ended atomic.Int64
}

// open builds the service as its package does, with places to step in.
func open(t *testing.T, s *rpctest.Stand, quota int64) *opened {
	t.Helper()
	o := &opened{stand: s, path: filepath.Join(t.TempDir(), "handles.db"), dir: filepath.Join(t.TempDir(), "files")}
	entries, err := catalogue.OpenSQLite(t.Context(), o.path)
	must(t, err)
	t.Cleanup(func() { must(t, entries.Close()) })
	bucket, err := blobstore.Open(t.Context(), blobstore.Address{URL: "file://" + o.dir})
	must(t, err)
	t.Cleanup(func() { must(t, bucket.Close()) })
	o.hooks, o.disk = &hooks{Catalogue: entries}, &disk{Store: bucket}
	writer := binding.NewWriter(s.Backend, time.Now)
	guard := fence.NewGuard(writer, time.Now)
	o.files = files.New(files.Config{
		Guard: guard, Effects: binding.NewEffects(writer), Catalogue: o.hooks, Blobs: o.disk, QuotaBytes: quota, Logger: s.Logger, Now: o.hooks.now,
		Records: writer, CollectAfter: collectAfter,
	})
	o.handler, err = rpc.NewHandler(rpc.Config{
		TrustDomain: s.Domain.TrustDomain(), Logger: s.Logger, Verifier: s.Minter.Verifier(), Guard: guard, Telemetry: s.Telemetry,
		Files: o.files,
	})
	must(t, err)
	return o
}

// served is the service as a Door wants it.
func (o *opened) served() rpctest.Service {
	return rpctest.Service{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o.started.Add(1)
			defer o.ended.Add(1)
			o.handler.ServeHTTP(w, r)
		}),
		ID:    rpctest.ServiceID("filebroker"),
		Allow: rpc.Callers(o.stand.Domain.TrustDomain()),
		State: o.state,
	}
}

// arrived waits for a request that started after the first n.
func (o *opened) arrived(t *testing.T, n int64) {
	t.Helper()
	o.wait(t, func() bool { return o.started.Load() > n })
}

// over waits for the end of a request that started after the first n.
func (o *opened) over(t *testing.T, n int64) {
	t.Helper()
	o.wait(t, func() bool { return o.started.Load() > n && o.started.Load() == o.ended.Load() })
}

func (o *opened) wait(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(time.Minute); !ok(); {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%d requests have started and %d ended", o.started.Load(), o.ended.Load())
		}
	}
}

// state is every row of the catalogue and every file of the bucket.
func (o *opened) state(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+o.path)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	var out strings.Builder
	for _, query := range []string{
		"SELECT * FROM file_objects ORDER BY 1", "SELECT * FROM file_completions ORDER BY 1", "SELECT * FROM file_handles ORDER BY 1", "SELECT * FROM file_uploads ORDER BY 1",
		"SELECT * FROM file_contents ORDER BY 1",
	} {
		dump(t, db, query, &out)
	}
	for _, f := range o.blobs(t) {
		_, _ = fmt.Fprintln(&out, f)
	}
	return out.String()
}

// visible is every object that anybody can see, and what made it so.
func (o *opened) visible(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+o.path)
	must(t, err)
	defer func() { must(t, db.Close()) }()
	var out strings.Builder
	dump(t, db, "SELECT * FROM file_objects WHERE visible = 1 ORDER BY 1", &out)
	dump(t, db, "SELECT * FROM file_completions ORDER BY 1", &out)
	return out.String()
}

// blobs lists the files of the bucket, temporary ones too.
func (o *opened) blobs(t *testing.T) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(o.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	}))
	return out
}

func dump(t *testing.T, db *sql.DB, query string, out *strings.Builder) {
	t.Helper()
	rows, err := db.QueryContext(context.WithoutCancel(t.Context()), query)
	must(t, err)
	defer func() { must(t, rows.Close()) }()
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		must(t, rows.Scan(values...))
		_, _ = fmt.Fprint(out, query)
		for _, v := range values {
			if p, ok := v.(*any); ok {
				_, _ = fmt.Fprintf(out, " %v", *p)
			}
		}
		_, _ = fmt.Fprintln(out)
	}
	must(t, rows.Err())
}

// hooks is the real catalogue with places to step in, and the clock.
type hooks struct {
	files.Catalogue

	mu            sync.Mutex
	beforeStage   func()
	completeError error
	ahead         time.Duration
	gone          atomic.Bool // the database
}

var errGone = errors.New("the database has gone")

// disk is the real store of blobs on a disk that may be full or slow.
type disk struct {
	blob.Store
	room    atomic.Int64 // in bytes; 0 is enough
	written atomic.Pointer[func()]
}

func (d *disk) Create(ctx context.Context, key string) (blob.Writer, error) {
	w, err := d.Store.Create(ctx, key)
	return &diskWriter{Writer: w, disk: d, room: d.room.Load()}, err
}

type diskWriter struct {
	blob.Writer
	disk *disk
	room int64
}

func (w *diskWriter) Write(p []byte) (int, error) {
	if most := w.disk.room.Load(); most > 0 {
		if w.room -= int64(len(p)); w.room < 0 {
			return 0, syscall.ENOSPC
		}
	}
	if f := w.disk.written.Swap(nil); f != nil {
		(*f)()
	}
	return w.Writer.Write(p)
}

func (h *hooks) BeforeWrite(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beforeStage = f
}

func (h *hooks) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.ahead)
}

func (h *hooks) enter() {
	h.mu.Lock()
	f := h.beforeStage
	h.beforeStage = nil
	h.mu.Unlock()
	if f != nil {
		f()
	}
}

func (h *hooks) StageObject(ctx context.Context, o files.Object, until time.Time, q files.Quota) error {
	h.enter()
	if h.gone.Load() {
		return errGone
	}
	return h.Catalogue.StageObject(ctx, o, until, q)
}

func (h *hooks) StageHandle(ctx context.Context, x files.Handle, most int) (files.Handle, error) {
	h.enter()
	return h.Catalogue.StageHandle(ctx, x, most)
}

func (h *hooks) BeginUpload(ctx context.Context, u files.PartialUpload) (files.PartialUpload, error) {
	if h.gone.Load() {
		return files.PartialUpload{}, errGone
	}
	return h.Catalogue.BeginUpload(ctx, u)
}

func (h *hooks) AppendPart(ctx context.Context, u files.PartialUpload, p files.Part) (files.PartialUpload, error) {
	if h.gone.Load() {
		return files.PartialUpload{}, errGone
	}
	return h.Catalogue.AppendPart(ctx, u, p)
}

func (h *hooks) DropObject(ctx context.Context, id string) (bool, error) {
	if h.gone.Load() {
		return false, errGone
	}
	return h.Catalogue.DropObject(ctx, id)
}

// Complete loses its answer once where completeError is set.
func (h *hooks) Complete(ctx context.Context, c files.Completion) (files.Completion, error) {
	if h.gone.Load() {
		return files.Completion{}, errGone
	}
	stands, err := h.Catalogue.Complete(ctx, c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.completeError != nil {
		err, h.completeError = h.completeError, nil
	}
	return stands, err
}
