package rpc_test

import (
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
)

// A file that is sent by itself is one of the conversation: it is described, read in
// whole and in ranges, and the run can be given a handle for it.
func TestAStoredFile(t *testing.T) {
	s := newSession(t)
	for name, content := range map[string]string{"empty": "", "one part": large(t, blob.MaxChunkBytes), "several parts": large(t, 3*blob.MaxChunkBytes+1)} {
		t.Run(name, func(t *testing.T) {
			res, err := putFileOf(t.Context(), s.control, s.stand.Envelope(), head(uint64(len(content)+9)), content, sent(content))
			must(t, err)
			got, err := s.control.StatObject(t.Context(), &filebrokerv1.StatObjectRequest{ObjectId: res.GetObjectId()})
			must(t, err)
			if got.GetBindingId() != s.stand.BindingID || got.GetEpoch() != s.stand.Envelope().Epoch || string(got.GetInfo().GetSha256()) != string(info(content).GetSha256()) ||
				got.GetInfo().GetSize() != uint64(len(content)) || res.GetInfo().String() != got.GetInfo().String() {
				t.Errorf("it is %v, and was put as %v", got, res)
			}
			s.wantContent(t, res.GetObjectId(), content)
			size := uint64(len(content))
			for _, r := range [][2]uint64{{0, 0}, {0, size}, {0, size / 2}, {size / 2, 0}, {size / 3, size / 2}, {size, 0}} {
				from, to := r[0], r[0]+r[1]
				if r[1] == 0 {
					to = size
				}
				part, err := readOf(t.Context(), s.control, &filebrokerv1.ReadObjectRequest{ObjectId: res.GetObjectId(), BindingId: s.stand.BindingID, Offset: r[0], Length: r[1]})
				if err != nil || string(part) != content[from:to] {
					t.Errorf("%v: %d bytes, %v", r, len(part), err)
				}
			}
			for _, r := range [][2]uint64{{size + 1, 0}, {0, size + 1}, {size, 1}} {
				_, err := readOf(t.Context(), s.control, &filebrokerv1.ReadObjectRequest{ObjectId: res.GetObjectId(), BindingId: s.stand.BindingID, Offset: r[0], Length: r[1]})
				wantCode(t, err, fault.InvalidRequest)
			}
			_, err = readOf(t.Context(), s.control, &filebrokerv1.ReadObjectRequest{ObjectId: res.GetObjectId(), BindingId: "hs_another"})
			wantCode(t, err, fault.NotFound)
		})
	}
	_, err := s.control.StatObject(t.Context(), &filebrokerv1.StatObjectRequest{ObjectId: "obj_none"})
	wantCode(t, err, fault.NotFound)
}

// What is not what its sender says is not stored, and leaves nothing behind.
func TestFilesThatAreNotWhatWasSent(t *testing.T) {
	s := newSession(t)
	content := large(t, 2*blob.MaxChunkBytes)
	most := uint64(len(content))
	asPNG := head(most)
	asPNG.MimeType = "image/png"
	for name, c := range map[string]struct {
		head *filebrokerv1.FileHead
		end  *filebrokerv1.FileEnd
		code fault.Code
	}{
		"no end":                       {head(most), nil, fault.InvalidRequest},
		"another digest":               {head(most), sent(content[1:] + "x"), fault.InvalidRequest},
		"another size":                 {head(most), &filebrokerv1.FileEnd{Size: most - 1, Sha256: info(content).GetSha256()}, fault.InvalidRequest},
		"no digest":                    {head(most), &filebrokerv1.FileEnd{Size: most}, fault.InvalidRequest},
		"more than announced":          {head(most - 1), sent(content), fault.RequestTooLarge},
		"more than the service allows": {head(64<<20 + 1), sent(content), fault.InvalidRequest},
		"more than there is room for":  {head(quotaOfTests + 1), sent(content), fault.Capacity},
		"no head":                      {nil, sent(content), fault.InvalidRequest},
		"another type":                 {asPNG, sent(content), fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.state(t)
			_, err := putFileOf(t.Context(), s.control, s.stand.Envelope(), c.head, content, c.end)
			wantCode(t, err, c.code)
			if after := s.state(t); after != before {
				t.Errorf("something was left behind:\n%s", after)
			}
		})
	}
}

// A part that comes after the last one, or begins again, is refused.
func TestAStoredFileThatChangesInTheMiddle(t *testing.T) {
	s := newSession(t)
	other := s.stand.Another(t, func(id *binding.Identity) { id.Subject = "user-2" })
	for name, c := range map[string]struct {
		change func(first, second *filebrokerv1.PutFileRequest)
		code   fault.Code
	}{
		"after the end":    {func(first, _ *filebrokerv1.PutFileRequest) { first.End = sent("ab") }, fault.InvalidRequest},
		"head again":       {func(_, second *filebrokerv1.PutFileRequest) { second.Head = head(2) }, fault.InvalidRequest},
		"another envelope": {func(_, second *filebrokerv1.PutFileRequest) { second.Envelope = other.Envelope().Proto() }, fault.CapabilityScope},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.state(t)
			e := s.stand.Envelope()
			first := &filebrokerv1.PutFileRequest{Envelope: e.Proto(), Head: head(2), Chunk: []byte("a")}
			second := &filebrokerv1.PutFileRequest{Envelope: e.Proto(), Chunk: []byte("b"), End: sent("ab")}
			c.change(first, second)
			stream, err := s.control.PutFile(t.Context())
			must(t, err)
			_ = stream.Send(first)
			_ = stream.Send(second) // the answer says what was wrong
			_, err = stream.CloseAndReceive()
			wantCode(t, err, c.code)
			if after := s.state(t); after != before {
				t.Errorf("something was left behind:\n%s", after)
			}
		})
	}
}

// What ToolBroker or a message brings is kept whatever it says it is, and is only
// bytes where it is not that; what a run uploads has to be what it says.
func TestTypesOfFiles(t *testing.T) {
	s := newSession(t)
	i := info("words")
	i.MimeType = "image/png"
	res, err := put(t.Context(), s.control, s.stand.Envelope(), i, "words")
	must(t, err)
	got, err := s.control.StatObject(t.Context(), &filebrokerv1.StatObjectRequest{ObjectId: res.GetObjectId()})
	if err != nil || got.GetInfo().GetMimeType() != "application/octet-stream" {
		t.Errorf("it is %v, %v", got, err)
	}
	handle := s.uploadHandle(t, 100)
	e := s.stand.Envelope()
	before := s.state(t)
	_, err = upload(s.ctx(t, e, handle), s.sandbox, e, handle, i, "words")
	wantCode(t, err, fault.InvalidRequest)
	if after := s.state(t); after != before {
		t.Errorf("something was left behind:\n%s", after)
	}
}
