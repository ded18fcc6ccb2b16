package rpc_test

import (
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/services/filebroker/internal/files"
)

func TestHandles(t *testing.T) {
	s := newSession(t)
	object := s.object(t, "content")
	down, up := s.downloadHandle(t, object), s.uploadHandle(t, 100)
	other := s.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	before := s.state(t)

	use := func(t *testing.T, e fence.Envelope, listed, handle string) (down, up error) {
		t.Helper()
		_, content, down := download(s.ctx(t, e, listed), s.sandbox, e, handle)
		if len(content) > 0 {
			t.Errorf("content came: %q", content)
		}
		_, up = upload(s.ctx(t, e, listed), s.sandbox, e, handle, info("content"), "content")
		return down, up
	}
	t.Run("not listed in the capability", func(t *testing.T) {
		for _, handle := range []string{down, up} {
			d, u := use(t, s.stand.Envelope(), "fh_another", handle)
			wantCode(t, d, fault.HandleDenied)
			wantCode(t, u, fault.HandleDenied)
		}
	})
	t.Run("never issued", func(t *testing.T) {
		d, u := use(t, s.stand.Envelope(), "fh_invented", "fh_invented")
		wantCode(t, d, fault.HandleInvalid)
		wantCode(t, u, fault.HandleInvalid)
	})
	t.Run("other direction", func(t *testing.T) {
		d, _ := use(t, s.stand.Envelope(), up, up+"x")
		wantCode(t, d, fault.HandleDenied)
		e := s.stand.Envelope()
		_, _, err := download(s.ctx(t, e, up), s.sandbox, e, up)
		wantCode(t, err, fault.HandleDenied)
		_, err = upload(s.ctx(t, e, down), s.sandbox, e, down, info("content"), "content")
		wantCode(t, err, fault.HandleDenied)
	})
	t.Run("other binding's", func(t *testing.T) {
		for _, handle := range []string{down, up} {
			d, u := use(t, other.Envelope(), handle, handle)
			wantCode(t, d, fault.HandleDenied)
			wantCode(t, u, fault.HandleDenied)
		}
	})
	t.Run("expired", func(t *testing.T) {
		s.hooks.mu.Lock()
		s.hooks.ahead = 2 * time.Minute
		s.hooks.mu.Unlock()
		e := s.stand.Envelope()
		_, _, err := download(s.ctx(t, e, down), s.sandbox, e, down)
		wantCode(t, err, fault.HandleExpired)
		_, err = upload(s.ctx(t, e, up), s.sandbox, e, up, info("content"), "content")
		wantCode(t, err, fault.HandleExpired)
		s.hooks.mu.Lock()
		s.hooks.ahead = 0
		s.hooks.mu.Unlock()
	})
	t.Run("other run's", func(t *testing.T) {
		s.stand.EndRun(t)
		s.stand.StartRun(t, "run_after_that")
		for _, handle := range []string{down, up} {
			d, u := use(t, s.stand.Envelope(), handle, handle)
			wantCode(t, d, fault.HandleDenied)
			wantCode(t, u, fault.HandleDenied)
		}
	})
	if after := s.state(t); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	s.wantContent(t, object, "content") // a new run of the conversation gets a handle of its own
}

func TestIssueOfWhatCannotBe(t *testing.T) {
	s := newSession(t)
	object := s.object(t, "content")
	other := s.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	foreign, err := put(t.Context(), s.control, other.Envelope(), info("content"), "content")
	must(t, err)
	deadline := s.stand.Record(t).Run.Deadline
	before := s.state(t)
	const down, up = filebrokerv1.Direction_DIRECTION_DOWNLOAD, filebrokerv1.Direction_DIRECTION_UPLOAD
	e, soon := s.stand.Envelope(), time.Now().Add(time.Minute)
	for name, c := range map[string]struct {
		req  *filebrokerv1.IssueHandleRequest
		code fault.Code
	}{
		"after the run's deadline":     {issue(e, up, "", 1, deadline.Add(time.Millisecond)), fault.InvalidRequest},
		"expired already":              {issue(e, up, "", 1, time.Now().Add(-time.Second)), fault.InvalidRequest},
		"no direction":                 {issue(e, 0, "", 1, soon), fault.InvalidRequest},
		"unknown direction":            {issue(e, 3, "", 1, soon), fault.InvalidRequest},
		"upload of an object":          {issue(e, up, object, 1, soon), fault.InvalidRequest},
		"upload of nothing":            {issue(e, up, "", 0, soon), fault.InvalidRequest},
		"upload of too much":           {issue(e, up, "", 64<<20+1, soon), fault.InvalidRequest},
		"download with a size":         {issue(e, down, object, 1, soon), fault.InvalidRequest},
		"download of nothing":          {issue(e, down, "", 0, soon), fault.NotFound},
		"download of no object":        {issue(e, down, "obj_invented", 0, soon), fault.NotFound},
		"download of another's object": {issue(e, down, foreign.GetObjectId(), 0, soon), fault.NotFound},
		"download of a path":           {issue(e, down, "../object", 0, soon), fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.control.IssueHandle(t.Context(), c.req)
			wantCode(t, err, c.code)
		})
	}
	if after := s.state(t); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	must(t, func() error { _, err := s.control.IssueHandle(t.Context(), issue(e, up, "", 1, deadline)); return err }())
}

func TestIssueHappensOnceForItsKey(t *testing.T) {
	s := newSession(t)
	e, expires := s.stand.Envelope(), time.Now().Add(time.Minute)
	first, err := s.control.IssueHandle(t.Context(), issue(e, filebrokerv1.Direction_DIRECTION_UPLOAD, "", 10, expires))
	must(t, err)
	again, err := s.control.IssueHandle(t.Context(), issue(e, filebrokerv1.Direction_DIRECTION_UPLOAD, "", 10, expires))
	if err != nil || again.GetHandle() != first.GetHandle() {
		t.Errorf("got %v, %v", again, err)
	}
	_, err = s.control.IssueHandle(t.Context(), issue(e, filebrokerv1.Direction_DIRECTION_UPLOAD, "", 11, expires))
	wantCode(t, err, fault.IdempotencyConflict)
}

func TestHandlesOfARunAreBounded(t *testing.T) {
	s := newSession(t)
	for range files.MaxHandlesPerRun {
		s.uploadHandle(t, 1)
	}
	_, err := s.control.IssueHandle(t.Context(), issue(s.stand.Envelope(), filebrokerv1.Direction_DIRECTION_UPLOAD, "", 1, time.Now().Add(time.Minute)))
	wantCode(t, err, fault.Capacity)
}
