package rpc_test

import (
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
)

const partSize = 300 << 10

// An upload that breaks off between two parts goes on where the last whole one ended,
// and is visible only once it is completed, as one admitted effect.
func TestAnUploadInPartsIsResumed(t *testing.T) {
	s := newSession(t)
	content := large(t, 3*partSize+7)
	handle := s.uploadHandle(t, uint64(len(content)))
	if next := s.part(t, s.stand.Envelope(), handle, content, 0, partSize); next != partSize {
		t.Fatalf("the next part begins at %d", next)
	}
	// It breaks off in the middle of the second, which leaves nothing.
	e := s.stand.Envelope()
	before := s.state(t)
	_, err := uploadPartOf(s.ctx(t, e, handle), s.sandbox, e, handle, partOf(content, partSize, partSize), content[partSize:2*partSize-1])
	wantCode(t, err, fault.InvalidRequest)
	if after := s.state(t); after != before {
		t.Errorf("half a part is kept:\n%s", after)
	}
	offset, completed := s.next(t, handle)
	if offset != partSize || completed {
		t.Fatalf("it goes on at %d, %v", offset, completed)
	}
	for size := uint32(len(content)); offset < size; { //nolint:gosec // a few parts
		n := min(partSize, size-offset)
		s.part(t, s.stand.Envelope(), handle, content, offset, n)
		s.part(t, s.stand.Envelope(), handle, content, offset, n) // its answer was lost
		offset += n
	}
	if s.visible(t) != "" || len(s.stand.Rows(t)) != 0 {
		t.Error("it is visible before it was completed")
	}
	use := s.stand.Envelope()
	first, err := s.completeParts(t, use, handle)
	must(t, err)
	again, err := s.completeParts(t, use, handle)
	if err != nil || again.GetObjectId() != first.GetObjectId() || !again.GetReplayed() || first.GetReplayed() || string(first.GetSha256()) != string(info(content).GetSha256()) {
		t.Errorf("%v, and again %v, %v", first, again, err)
	}
	s.wantContent(t, first.GetObjectId(), content)
	if rows := s.stand.Rows(t); len(rows) != 1 || rows[0].Kind != "file.upload" || rows[0].State != binding.RowConcluded {
		t.Errorf("ledger is %+v", rows)
	}
	if blobs := s.blobs(t); len(blobs) != 1 || strings.Contains(blobs[0], "parts") {
		t.Errorf("the parts are left: %q", blobs)
	}
	if _, completed := s.next(t, handle); !completed {
		t.Error("the status does not say so")
	}
	_, err = s.completeParts(t, s.stand.Envelope(), handle)
	wantCode(t, err, fault.HandleDenied)
	late := s.stand.Envelope()
	_, err = uploadPartOf(s.ctx(t, late, handle), s.sandbox, late, handle, partOf(content, 0, partSize), content[:partSize])
	wantCode(t, err, fault.HandleDenied)
}

// Of two uploads of one part at once, and of parts that differ, one stands.
func TestPartsThatMeet(t *testing.T) {
	s := newSession(t)
	content := large(t, 2*partSize)
	handle := s.uploadHandle(t, uint64(len(content)))
	first := s.stand.Envelope()
	f := func() { s.part(t, first, handle, content, 0, partSize) }
	s.disk.written.Store(&f) // another one is first
	second := s.stand.Envelope()
	res, err := uploadPartOf(s.ctx(t, second, handle), s.sandbox, second, handle, partOf(content, 0, partSize), content[:partSize])
	if err != nil || res.GetNextOffset() != partSize {
		t.Errorf("%v, %v", res, err)
	}
	if blobs := s.blobs(t); len(blobs) != 1 {
		t.Errorf("the bucket has %q", blobs)
	}
	s.part(t, s.stand.Envelope(), handle, content, partSize, partSize)
	done, err := s.completeParts(t, s.stand.Envelope(), handle)
	must(t, err)
	s.wantContent(t, done.GetObjectId(), content)
}

// An object whose parts are each right and that is not what was announced is given
// up; the handle can be used again.
func TestPartsThatAreAnotherObject(t *testing.T) {
	s := newSession(t)
	content := large(t, 2*partSize)
	wrong := content[:partSize] + content[:partSize]
	handle := s.uploadHandle(t, uint64(len(content)))
	s.part(t, s.stand.Envelope(), handle, content, 0, partSize)
	e := s.stand.Envelope()
	p := partOf(wrong, partSize, partSize)
	p.Whole = info(content)
	_, err := uploadPartOf(s.ctx(t, e, handle), s.sandbox, e, handle, p, wrong[partSize:])
	must(t, err)
	_, err = s.completeParts(t, s.stand.Envelope(), handle)
	wantCode(t, err, fault.InvalidRequest)
	if left := s.blobs(t); len(left) != 0 || s.visible(t) != "" {
		t.Errorf("something was left behind: %q, %s", left, s.visible(t))
	}
	s.part(t, s.stand.Envelope(), handle, content, 0, partSize)
	s.part(t, s.stand.Envelope(), handle, content, partSize, partSize)
	_, err = s.completeParts(t, s.stand.Envelope(), handle)
	must(t, err)
}

func TestPartsThatAreNotTaken(t *testing.T) {
	s := newSession(t)
	content := large(t, 3*partSize)
	handle := s.uploadHandle(t, uint64(len(content)))
	s.part(t, s.stand.Envelope(), handle, content, 0, partSize)
	for name, c := range map[string]struct {
		change func(*filebrokerv1.PartInfo)
		code   fault.Code
	}{
		"a gap":                {func(p *filebrokerv1.PartInfo) { p.Offset++ }, fault.RevisionConflict},
		"an overlap":           {func(p *filebrokerv1.PartInfo) { p.Offset-- }, fault.RevisionConflict},
		"another digest":       {func(p *filebrokerv1.PartInfo) { p.Sha256 = info("x").GetSha256() }, fault.InvalidRequest},
		"more than announced":  {func(p *filebrokerv1.PartInfo) { p.Size-- }, fault.RequestTooLarge},
		"less than announced":  {func(p *filebrokerv1.PartInfo) { p.Size++ }, fault.InvalidRequest},
		"more than the object": {func(p *filebrokerv1.PartInfo) { p.Offset = 2*partSize + 1 }, fault.InvalidRequest},
		"a small part":         {func(p *filebrokerv1.PartInfo) { p.Size = 1000 }, fault.InvalidRequest},
		"nothing":              {func(p *filebrokerv1.PartInfo) { p.Size = 0 }, fault.InvalidRequest},
		"a large part":         {func(p *filebrokerv1.PartInfo) { p.Size = 8<<20 + 1 }, fault.InvalidRequest},
		"another object":       {func(p *filebrokerv1.PartInfo) { p.Whole = info(content[1:] + "x") }, fault.IdempotencyConflict},
		"more than the handle": {func(p *filebrokerv1.PartInfo) { p.Whole = info(content + "x") }, fault.RequestTooLarge},
		"no object":            {func(p *filebrokerv1.PartInfo) { p.Whole = nil }, fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.state(t)
			e := s.stand.Envelope()
			p := partOf(content, partSize, partSize)
			c.change(p)
			_, err := uploadPartOf(s.ctx(t, e, handle), s.sandbox, e, handle, p, content[partSize:2*partSize])
			wantCode(t, err, c.code)
			if after := s.state(t); after != before {
				t.Errorf("something was left behind:\n%s", after)
			}
		})
	}
	_, err := s.completeParts(t, s.stand.Envelope(), handle)
	wantCode(t, err, fault.RevisionConflict)
	_, err = s.completeParts(t, s.stand.Envelope(), s.uploadHandle(t, 10))
	wantCode(t, err, fault.HandleInvalid)
}

// After the end is decided no parts become an object.
func TestPartsAfterTheEndIsDecided(t *testing.T) {
	s := newSession(t)
	handle := s.uploadHandle(t, 100)
	s.part(t, s.stand.Envelope(), handle, "content", 0, 7)
	_, err := s.stand.Writer.SetEnd(t.Context(), s.stand.Grant(t, s.stand.Envelope()), binding.End{Kind: binding.EndCancelling, Reason: "shutdown"})
	must(t, err)
	_, err = s.completeParts(t, s.stand.Envelope(), handle)
	wantCode(t, err, fault.Cancelled)
	if s.visible(t) != "" {
		t.Error("it is visible")
	}
}

// A handle for one use opens once, to the same request as often as it comes.
func TestAHandleForOneUse(t *testing.T) {
	s := newSession(t)
	content := large(t, 2*partSize)
	req := issue(s.stand.Envelope(), filebrokerv1.Direction_DIRECTION_DOWNLOAD, s.object(t, content), 0, time.Now().Add(time.Minute))
	req.SingleUse = true
	res, err := s.control.IssueHandle(t.Context(), req)
	must(t, err)
	e := s.stand.Envelope()
	for range 2 {
		_, got, err := download(s.ctx(t, e, res.GetHandle()), s.sandbox, e, res.GetHandle())
		if err != nil || string(got) != content {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	other := s.stand.Envelope()
	_, _, err = download(s.ctx(t, other, res.GetHandle()), s.sandbox, other, res.GetHandle())
	wantCode(t, err, fault.HandleDenied)
	upload := issue(s.stand.Envelope(), filebrokerv1.Direction_DIRECTION_UPLOAD, "", 10, time.Now().Add(time.Minute))
	upload.SingleUse = true
	_, err = s.control.IssueHandle(t.Context(), upload)
	wantCode(t, err, fault.InvalidRequest)
}

// A range of an object is read through a handle as well.
func TestARangeThroughAHandle(t *testing.T) {
	s := newSession(t)
	content := large(t, 2*partSize)
	handle := s.downloadHandle(t, s.object(t, content))
	e := s.stand.Envelope()
	for _, r := range [][2]uint64{{0, 1}, {partSize, 0}, {7, partSize}} {
		stream, err := s.sandbox.Download(s.ctx(t, e, handle), &filebrokerv1.DownloadRequest{Envelope: e.Proto(), Handle: handle, Offset: r[0], Length: r[1]})
		must(t, err)
		var got []byte
		for {
			m, err := stream.Receive()
			if isEOF(err) {
				break
			}
			must(t, err)
			got = append(got, m.GetChunk()...)
		}
		must(t, stream.Close())
		to := r[0] + r[1]
		if r[1] == 0 {
			to = uint64(len(content))
		}
		if string(got) != content[r[0]:to] {
			t.Errorf("%v: %d bytes came", r, len(got))
		}
	}
}

// An upload has a type that its handle allows.
func TestTypesOfAHandle(t *testing.T) {
	s := newSession(t)
	for _, c := range []struct {
		types []string
		code  fault.Code
	}{
		{[]string{"text/plain"}, ""},
		{[]string{"image/png", "text/*"}, ""},
		{nil, ""},
		{[]string{"image/*"}, fault.InvalidRequest},
		{[]string{"text/plai", "tex/*"}, fault.InvalidRequest},
	} {
		req := issue(s.stand.Envelope(), filebrokerv1.Direction_DIRECTION_UPLOAD, "", 10, time.Now().Add(time.Minute))
		req.MimeTypes = c.types
		res, err := s.control.IssueHandle(t.Context(), req)
		must(t, err)
		e := s.stand.Envelope()
		_, err = upload(s.ctx(t, e, res.GetHandle()), s.sandbox, e, res.GetHandle(), info("words"), "words")
		wantCode(t, err, c.code)
	}
	for _, bad := range []string{"text", "*/*", "text/plain; charset=utf-8"} {
		req := issue(s.stand.Envelope(), filebrokerv1.Direction_DIRECTION_UPLOAD, "", 10, time.Now().Add(time.Minute))
		req.MimeTypes = []string{bad}
		_, err := s.control.IssueHandle(t.Context(), req)
		wantCode(t, err, fault.InvalidRequest)
	}
}
