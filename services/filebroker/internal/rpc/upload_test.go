package rpc_test

import (
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
)

func TestUploadAndDownload(t *testing.T) {
	s := newSession(t)
	content := large(t, 3*blob.MaxChunkBytes+1)
	handle := s.uploadHandle(t, uint64(len(content)))
	e := s.stand.Envelope()
	res, err := upload(s.ctx(t, e, handle), s.sandbox, e, handle, info(content), content)
	if err != nil || res.GetReplayed() || string(res.GetSha256()) != string(info(content).GetSha256()) {
		t.Fatalf("got %v, %v", res, err)
	}
	s.wantContent(t, res.GetObjectId(), content)
	rows := s.stand.Rows(t)
	if len(rows) != 1 || rows[0].Kind != "file.upload" || rows[0].State != binding.RowConcluded {
		t.Errorf("ledger is %+v", rows)
	}
}

func TestUploadHappensOnceForItsHandle(t *testing.T) {
	s := newSession(t)
	handle := s.uploadHandle(t, 100)
	e := s.stand.Envelope()
	ctx := s.ctx(t, e, handle)
	first, err := upload(ctx, s.sandbox, e, handle, info("content"), "content")
	must(t, err)
	before := s.state(t)
	again, err := upload(ctx, s.sandbox, e, handle, info("content"), "content")
	if err != nil || !again.GetReplayed() || again.GetObjectId() != first.GetObjectId() {
		t.Errorf("got %v, %v", again, err)
	}
	_, err = upload(ctx, s.sandbox, e, handle, info("other"), "other")
	wantCode(t, err, fault.IdempotencyConflict)
	_, err = upload(ctx, s.sandbox, s.stand.Envelope(), handle, info("content"), "content")
	wantCode(t, err, fault.HandleDenied)
	if after := s.state(t); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
}

func TestUploadWhoseOutcomeIsUnknownIsSettledByTheSameRequest(t *testing.T) {
	s := newSession(t)
	handle := s.uploadHandle(t, 100)
	e := s.stand.Envelope()
	ctx := s.ctx(t, e, handle)
	s.hooks.completeError = errLost
	_, err := upload(ctx, s.sandbox, e, handle, info("content"), "content")
	wantCode(t, err, fault.ToolOutcomeUnknown)
	res, err := upload(ctx, s.sandbox, e, handle, info("content"), "content")
	if err != nil || !res.GetReplayed() {
		t.Fatalf("got %v, %v", res, err)
	}
	s.wantContent(t, res.GetObjectId(), "content")
	if blobs := s.blobs(t); len(blobs) != 1 {
		t.Errorf("the bucket has %q", blobs)
	}
}

func TestUploadAfterTheEndIsDecided(t *testing.T) {
	s := newSession(t)
	handle := s.uploadHandle(t, 100)
	_, err := s.stand.Writer.SetEnd(t.Context(), s.stand.Grant(t, s.stand.Envelope()), binding.End{Kind: binding.EndCancelling, Reason: "shutdown"})
	must(t, err)
	before := s.state(t)
	e := s.stand.Envelope()
	_, err = upload(s.ctx(t, e, handle), s.sandbox, e, handle, info("content"), "content")
	wantCode(t, err, fault.Cancelled)
	if after := s.state(t); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
}

// What is not whole is not visible, and leaves nothing behind.
func TestUploadsThatAreNotWhole(t *testing.T) {
	s := newSession(t)
	content := large(t, 2*blob.MaxChunkBytes)
	for name, c := range map[string]struct {
		info *filebrokerv1.ObjectInfo
		send string
		code fault.Code
	}{
		"truncated":                    {info(content), content[:len(content)-1], fault.InvalidRequest},
		"announces more than it has":   {&filebrokerv1.ObjectInfo{Size: 2, Sha256: info("x").GetSha256(), MimeType: "text/plain"}, "x", fault.InvalidRequest},
		"nothing sent":                 {info(content), "", fault.InvalidRequest},
		"wrong digest":                 {info(content), content[1:] + "x", fault.InvalidRequest},
		"more than announced":          {info(content[:10]), content, fault.RequestTooLarge},
		"more than nothing":            {info(""), "x", fault.RequestTooLarge},
		"more than the handle allows":  {info(content + "x"), content + "x", fault.RequestTooLarge},
		"more than the service allows": {&filebrokerv1.ObjectInfo{Size: 64<<20 + 1, Sha256: make([]byte, 32), MimeType: "text/plain"}, "x", fault.InvalidRequest},
		"no info":                      {nil, content, fault.InvalidRequest},
		"digest of 31 bytes":           {&filebrokerv1.ObjectInfo{Size: 1, Sha256: make([]byte, 31), MimeType: "text/plain"}, "x", fault.InvalidRequest},
		"no type":                      {&filebrokerv1.ObjectInfo{Size: 1, Sha256: make([]byte, 32)}, "x", fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			handle := s.uploadHandle(t, uint64(len(content)))
			before := s.state(t)
			e := s.stand.Envelope()
			_, err := upload(s.ctx(t, e, handle), s.sandbox, e, handle, c.info, c.send)
			wantCode(t, err, c.code)
			if after := s.state(t); after != before {
				t.Errorf("something was left behind:\n%s", after)
			}
		})
	}
	if rows := s.stand.Rows(t); len(rows) != 0 {
		t.Errorf("ledger is %+v", rows)
	}
}

// parts that a client may not send in the middle of an upload.
func TestUploadThatChangesInTheMiddle(t *testing.T) {
	s := newSession(t)
	other := s.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	for name, c := range map[string]struct {
		change func(*filebrokerv1.UploadRequest)
		code   fault.Code
	}{
		"another generation": {func(m *filebrokerv1.UploadRequest) { m.Envelope.LeaseGeneration++ }, fault.CapabilityScope},
		"another epoch":      {func(m *filebrokerv1.UploadRequest) { m.Envelope.Epoch++ }, fault.CapabilityScope},
		"another run":        {func(m *filebrokerv1.UploadRequest) { m.Envelope.RunId = "run_another" }, fault.CapabilityScope},
		"another binding":    {func(m *filebrokerv1.UploadRequest) { m.Envelope = other.Envelope().Proto() }, fault.CapabilityScope},
		"another key":        {func(m *filebrokerv1.UploadRequest) { m.Envelope.IdempotencyKey = "another" }, fault.CapabilityScope},
		"no envelope":        {func(m *filebrokerv1.UploadRequest) { m.Envelope = nil }, fault.InvalidRequest},
		"another handle":     {func(m *filebrokerv1.UploadRequest) { m.Handle = "fh_another" }, fault.InvalidRequest},
		"info again":         {func(m *filebrokerv1.UploadRequest) { m.Info = info("ab") }, fault.InvalidRequest},
		"chunk too large":    {func(m *filebrokerv1.UploadRequest) { m.Chunk = make([]byte, blob.MaxChunkBytes+1) }, fault.InvalidRequest},
		"message too large":  {func(m *filebrokerv1.UploadRequest) { m.Chunk = make([]byte, 2*blob.MaxChunkBytes) }, fault.RequestTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			handle := s.uploadHandle(t, 100)
			before := s.state(t)
			e := s.stand.Envelope()
			stream, err := s.sandbox.Upload(s.ctx(t, e, handle))
			must(t, err)
			must(t, stream.Send(&filebrokerv1.UploadRequest{Envelope: e.Proto(), Handle: handle, Info: info("ab"), Chunk: []byte("a")}))
			second := &filebrokerv1.UploadRequest{Envelope: e.Proto(), Handle: handle, Chunk: []byte("b")}
			c.change(second)
			_ = stream.Send(second) // the answer says what was wrong
			_, err = stream.CloseAndReceive()
			wantCode(t, err, c.code)
			if after := s.state(t); after != before {
				t.Errorf("something was left behind:\n%s", after)
			}
		})
	}
}

func TestUploadWithoutParts(t *testing.T) {
	s := newSession(t)
	handle := s.uploadHandle(t, 100)
	stream, err := s.sandbox.Upload(s.ctx(t, s.stand.Envelope(), handle))
	must(t, err)
	_, err = stream.CloseAndReceive()
	wantCode(t, err, fault.InvalidRequest)
}
