package rpc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/filebroker/internal/files"
)

// fullDisk is a store of blobs that takes so much of each blob.
type fullDisk struct {
	blob.Store
	room int
}

func (d fullDisk) Create(ctx context.Context, key string) (blob.Writer, error) {
	w, err := d.Store.Create(ctx, key)
	return &fullWriter{w, d.room}, err
}

type fullWriter struct {
	blob.Writer
	room int
}

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, syscall.ENOSPC
	}
	return w.Writer.Write(p)
}

// visible are the objects that anybody can see.
func (w *world) visible(t *testing.T) (ids []string) {
	t.Helper()
	entries, err := w.entries.Entries(t.Context(), "", 1000)
	must(t, err)
	for _, e := range entries {
		if _, err := w.now().Stat(t.Context(), e.ID); err == nil {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// cut gives content in parts and then breaks off.
func cut(content string, err error) blob.Parts {
	part := once(content)
	return func() ([]byte, error) {
		b, e := part()
		if errors.Is(e, io.EOF) {
			e = err
		}
		return b, e
	}
}

// bad is an input that is not taken.
type bad struct {
	// do sends it with an upload handle of the run that takes 1 MiB.
	do   func(ctx context.Context, s *files.Service, c files.Caller, handle string) error
	code fault.Code
	// service is another process than the usual one.
	service func(*world) *files.Service
}

func badInputs(t *testing.T, w *world) map[string]bad {
	t.Helper()
	up := func(info files.Info, parts func() blob.Parts) func(context.Context, *files.Service, files.Caller, string) error {
		return func(ctx context.Context, s *files.Service, c files.Caller, handle string) error {
			_, err := s.Upload(ctx, c, handle, info, parts())
			return err
		}
	}
	content := func() blob.Parts { return once("content") }
	part := func(change func(*files.NewPart), parts func() blob.Parts) func(context.Context, *files.Service, files.Caller, string) error {
		return func(ctx context.Context, s *files.Service, c files.Caller, handle string) error {
			p := files.NewPart{Content: blob.Of([]byte("content")), Whole: whole("content")}
			change(&p)
			_, err := s.UploadPart(ctx, c, handle, p, parts())
			return err
		}
	}
	same := func(*files.NewPart) {}
	other := w.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	others := other.Grant(t, other.Envelope())
	large, broken := strings.Repeat("x", 1<<20+1), errors.New("the stream broke")
	wrong := whole("content")
	wrong.SHA256[0]++
	long := whole("content")
	long.Size = files.MaxObjectBytes + 1
	later := func(w *world) *files.Service { return w.service(w.entries, w.blobs, time.Hour) }
	full := func(w *world) *files.Service { return w.service(w.entries, fullDisk{w.blobs, 3}, 0) }
	gone := func(writes int64) func(*world) *files.Service {
		return func(w *world) *files.Service {
			l := &life{}
			l.left.Store(writes)
			return w.service(mortal{w.entries, l}, w.blobs, 0)
		}
	}
	return map[string]bad{
		"more than the handle allows":   {do: up(whole(large), func() blob.Parts { return once(large) }), code: fault.RequestTooLarge},
		"more than the service allows":  {do: up(long, content), code: fault.RequestTooLarge},
		"more than announced":           {do: up(whole("conten"), content), code: fault.RequestTooLarge},
		"less than announced":           {do: up(whole("content and more"), content), code: fault.InvalidRequest},
		"wrong hash":                    {do: up(wrong, content), code: fault.InvalidRequest},
		"truncated stream":              {do: up(whole("content"), func() blob.Parts { return cut("cont", broken) }), code: fault.Internal},
		"type that it is not":           {do: up(files.Info{Content: blob.Of([]byte("content")), MIME: "image/png"}, content), code: fault.InvalidRequest},
		"expired handle":                {do: up(whole("content"), content), code: fault.HandleExpired, service: later},
		"disk full":                     {do: up(whole("content"), content), code: fault.PersistenceFailed, service: full},
		"database gone":                 {do: up(whole("content"), content), code: fault.PersistenceFailed, service: gone(0)},
		"database gone in mid-write":    {do: up(whole("content"), content), code: fault.ToolOutcomeUnknown, service: gone(1)},
		"part with a wrong offset":      {do: part(func(p *files.NewPart) { p.Offset = 1; p.Size = 6 }, func() blob.Parts { return once("ontent") }), code: fault.RevisionConflict},
		"part with a wrong hash":        {do: part(func(p *files.NewPart) { p.SHA256[0]++ }, content), code: fault.InvalidRequest},
		"part of a truncated stream":    {do: part(same, func() blob.Parts { return cut("cont", broken) }), code: fault.Internal},
		"part through an old handle":    {do: part(same, content), code: fault.HandleExpired, service: later},
		"part on a full disk":           {do: part(same, content), code: fault.PersistenceFailed, service: full},
		"part, database gone":           {do: part(same, content), code: fault.PersistenceFailed, service: gone(0)},
		"part, database gone after one": {do: part(same, content), code: fault.PersistenceFailed, service: gone(1)},
		"part, database gone after two": {do: part(same, content), code: fault.PersistenceFailed, service: gone(2)},
		"handle of another binding": {code: fault.HandleDenied, do: func(ctx context.Context, s *files.Service, _ files.Caller, handle string) error {
			_, err := s.Upload(ctx, files.Caller{Grant: others, Handles: []string{handle}}, handle, whole("content"), content())
			return err
		}},
		"handle that the capability does not list": {code: fault.HandleDenied, do: func(ctx context.Context, s *files.Service, c files.Caller, handle string) error {
			_, err := s.Upload(ctx, files.Caller{Grant: c.Grant}, handle, whole("content"), content())
			return err
		}},
		"handle that nobody issued": {code: fault.HandleInvalid, do: func(ctx context.Context, s *files.Service, c files.Caller, _ string) error {
			_, err := s.Upload(ctx, files.Caller{Grant: c.Grant, Handles: []string{"fh_none"}}, "fh_none", whole("content"), content())
			return err
		}},
		"upload handle for a download": {code: fault.HandleDenied, do: func(ctx context.Context, s *files.Service, c files.Caller, handle string) error {
			return s.Download(ctx, c, handle, files.Range{}, func(*files.Info, []byte) error { return nil })
		}},
		"completion of nothing": {code: fault.HandleInvalid, do: func(ctx context.Context, s *files.Service, c files.Caller, handle string) error {
			_, err := s.CompleteUpload(ctx, c, handle)
			return err
		}},
		"stored file of another hash": {code: fault.InvalidRequest, do: func(ctx context.Context, s *files.Service, c files.Caller, _ string) error {
			_, err := w.sent(ctx, s, c.Grant, "content", blob.Of([]byte("another")))
			return err
		}},
	}
}

// Each bad input has its code, on both stores, nothing of it is visible, and what it
// leaves where it could not clean up is collected.
func TestBadInput(t *testing.T) {
	onEachStore(t, func(t *testing.T, w *world) {
		for name, c := range badInputs(t, w) {
			handle, before := w.handle(t, ""), w.visible(t)
			s := w.now()
			if c.service != nil {
				s = c.service(w)
			}
			err := c.do(t.Context(), s, files.Caller{Grant: w.stand.Grant(t, w.stand.Envelope()), Handles: []string{handle}}, handle)
			if got := fault.CodeOf(err); got != c.code {
				t.Errorf("%s: got %v, want %s", name, err, c.code)
			}
			if after := w.visible(t); !slices.Equal(after, before) {
				t.Errorf("%s: %v is visible, before it was %v", name, after, before)
			}
			w.collect(t, collectAfter+3*time.Hour)
			w.consistent(t, name)
		}
		for _, name := range []string{"../../etc/passwd", `..\up`, "/etc/passwd", "a\x00b", "\u202egnp.exe", "CON", "", strings.Repeat("n", 1000)} {
			info := whole("content")
			info.Name = name
			id, err := w.now().Put(t.Context(), w.stand.Grant(t, w.stand.Envelope()), info, once("content"))
			must(t, err)
			o, err := w.now().Stat(t.Context(), id)
			if err != nil || o.Info.Name != files.CleanName(name) || strings.ContainsAny(o.Info.Name, "/\\\x00\u202e") || len(o.Info.Name) > 255 {
				t.Errorf("%q became %q, %v", name, o.Info.Name, err)
			}
		}
		w.consistent(t, "names")
	})
}
