package rpc_test

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
)

// wantContent reads the object through a fresh handle.
func (s *session) wantContent(t *testing.T, object, want string) {
	t.Helper()
	handle := s.downloadHandle(t, object)
	e := s.stand.Envelope()
	i, content, err := download(s.ctx(t, e, handle), s.sandbox, e, handle)
	if err != nil || string(content) != want {
		t.Errorf("%d bytes came, want %d: %v", len(content), len(want), err)
	}
	if w := info(want); i.GetSize() != w.GetSize() || string(i.GetSha256()) != string(w.GetSha256()) || i.GetMimeType() != w.GetMimeType() || i.GetDisplayName() != w.GetDisplayName() {
		t.Errorf("info is %v, want %v", i, w)
	}
}

func TestPutAndDownload(t *testing.T) {
	s := newSession(t)
	for name, content := range map[string]string{"empty": "", "one byte": "a", "one part": large(t, blob.MaxChunkBytes), "several parts": large(t, 3*blob.MaxChunkBytes+1)} {
		t.Run(name, func(t *testing.T) { s.wantContent(t, s.object(t, content), content) })
	}
}

func TestPutHappensOnceForItsKey(t *testing.T) {
	s := newSession(t)
	e := s.stand.Envelope()
	first, err := put(t.Context(), s.control, e, info("content"), "content")
	must(t, err)
	before := s.state(t)
	again, err := put(t.Context(), s.control, e, info("content"), "content")
	if err != nil || again.GetObjectId() != first.GetObjectId() {
		t.Errorf("got %v, %v", again, err)
	}
	_, err = put(t.Context(), s.control, e, info("other"), "other")
	wantCode(t, err, fault.IdempotencyConflict)
	_, err = put(t.Context(), s.control, e, info("content"), "c0ntent")
	wantCode(t, err, fault.InvalidRequest)
	if after := s.state(t); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
}

func TestQuotaOfABinding(t *testing.T) {
	s := newSession(t)
	content := large(t, quotaOfTests-10)
	s.object(t, content)
	handle := s.uploadHandle(t, 100)
	e := s.stand.Envelope()
	before := s.state(t)
	_, err := upload(s.ctx(t, e, handle), s.sandbox, e, handle, info("eleven byte"), "eleven byte")
	wantCode(t, err, fault.Capacity)
	_, err = put(t.Context(), s.control, s.stand.Envelope(), info("eleven byte"), "eleven byte")
	wantCode(t, err, fault.Capacity)
	// An attempt that fails gives its room back.
	_, err = upload(s.ctx(t, e, handle), s.sandbox, e, handle, info("ten  bytes"), "other")
	wantCode(t, err, fault.InvalidRequest)
	if after := s.state(t); after != before {
		t.Errorf("something was left behind:\n%s", after)
	}
	_, err = upload(s.ctx(t, e, handle), s.sandbox, e, handle, info("ten  bytes"), "ten  bytes")
	must(t, err)
	other := s.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	_, err = put(t.Context(), s.control, other.Envelope(), info(content), content)
	must(t, err)
}

// A name is stored for display, cleaned, and never reaches the file system.
func TestNamesAreForDisplayOnly(t *testing.T) {
	s := newSession(t)
	for _, name := range []string{"../../../../tmp/climbed", `..\..\climbed`, "/climbed", "climbed\u202e", "climbed\x00"} {
		i := info("content")
		i.DisplayName = name
		res, err := put(t.Context(), s.control, s.stand.Envelope(), i, "content")
		must(t, err)
		handle := s.downloadHandle(t, res.GetObjectId())
		e := s.stand.Envelope()
		got, _, err := download(s.ctx(t, e, handle), s.sandbox, e, handle)
		if err != nil || got.GetDisplayName() != "climbed" {
			t.Errorf("%q became %q, %v", name, got.GetDisplayName(), err)
		}
	}
	for _, path := range s.blobs(t) {
		if strings.Contains(path, "climbed") || strings.Contains(path, s.stand.BindingID) {
			t.Errorf("a blob stands at %s", path)
		}
	}
}

func TestPutWhoseReplyIsLostIsSettledByTheSameRequest(t *testing.T) {
	s := newSession(t)
	e := s.stand.Envelope()
	s.hooks.completeError = errLost
	_, err := put(t.Context(), s.control, e, info("content"), "content")
	wantCode(t, err, fault.PersistenceFailed)
	res, err := put(t.Context(), s.control, e, info("content"), "content")
	must(t, err)
	s.wantContent(t, res.GetObjectId(), "content")
	if blobs := s.blobs(t); len(blobs) != 1 {
		t.Errorf("the bucket has %q", blobs)
	}
}
