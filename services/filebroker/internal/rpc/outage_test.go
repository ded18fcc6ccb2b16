package rpc_test

import (
	"testing"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
)

// A disk that gets full in the middle of a file, and a database that goes while
// one is written, leave nothing visible, and the same request succeeds once they
// are back.
func TestFilesWhileAStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail, mend func(*session)
	}{
		"disk full": {
			func(s *session) { s.disk.room.Store(blob.MaxChunkBytes) },
			func(s *session) { s.disk.room.Store(0) },
		},
		"database gone": {
			func(s *session) { s.hooks.gone.Store(true) },
			func(s *session) { s.hooks.gone.Store(false) },
		},
		"database gone in mid-write": {
			func(s *session) {
				f := func() { s.hooks.gone.Store(true) }
				s.disk.written.Store(&f)
			},
			func(s *session) { s.hooks.gone.Store(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t)
			content := large(t, 3*blob.MaxChunkBytes)
			handle := s.uploadHandle(t, uint64(len(content)))
			e := s.stand.Envelope()
			before, have := s.visible(t), len(s.blobs(t))

			c.fail(s)
			_, err := put(t.Context(), s.control, e, info(content), content)
			wantCode(t, err, fault.PersistenceFailed)
			if name == "disk full" && len(s.blobs(t)) > have {
				t.Error("a part of a file was left on the disk")
			}
			c.mend(s)
			if after := s.visible(t); after != before {
				t.Errorf("something of the put is visible:\n%s", after)
			}
			res, err := put(t.Context(), s.control, e, info(content), content)
			must(t, err)
			s.wantContent(t, res.GetObjectId(), content)

			before, have = s.visible(t), len(s.blobs(t))
			c.fail(s)
			u := s.stand.Envelope()
			ctx := s.ctx(t, u, handle)
			_, err = upload(ctx, s.sandbox, u, handle, info(content), content)
			if code := fault.CodeOf(err); code != fault.PersistenceFailed && code != fault.ToolOutcomeUnknown {
				t.Errorf("the upload gave %v", err) // of a completion that was sent nobody knows
			}
			if name == "disk full" && len(s.blobs(t)) > have {
				t.Error("a part of a file was left on the disk")
			}
			c.mend(s)
			if after := s.visible(t); after != before {
				t.Errorf("something of the upload is visible:\n%s", after)
			}
			up, err := upload(ctx, s.sandbox, u, handle, info(content), content)
			must(t, err)
			s.wantContent(t, up.GetObjectId(), content)
		})
	}
}
