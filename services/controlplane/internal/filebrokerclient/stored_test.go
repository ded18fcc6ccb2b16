package filebrokerclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/services/controlplane/internal/runs"
)

func (f *fake) PutFile(_ context.Context, in filebrokerv1connect.FileBrokerServicePutFileServerStream) (*filebrokerv1.PutFileResponse, error) {
	if f.early {
		return nil, f.refuse
	}
	f.content, f.parts = nil, 0
	var end *filebrokerv1.FileEnd
	for end == nil {
		m, err := in.Receive()
		if err != nil {
			return nil, fault.New(fault.InvalidRequest, "test") // without an end it is not whole
		}
		f.key(m.GetEnvelope())
		if m.GetHead() != nil {
			f.info = &filebrokerv1.ObjectInfo{MimeType: m.GetHead().GetMimeType(), DisplayName: m.GetHead().GetDisplayName()}
		}
		f.parts++
		f.content = append(f.content, m.GetChunk()...)
		end = m.GetEnd()
	}
	sum := sha256.Sum256(f.content)
	if end.GetSize() != uint64(len(f.content)) || !bytes.Equal(end.GetSha256(), sum[:]) {
		return nil, fault.New(fault.InvalidRequest, "test")
	}
	f.info.Size, f.info.Sha256 = end.GetSize(), sum[:]
	return &filebrokerv1.PutFileResponse{ObjectId: "object-1", Info: f.said()}, nil
}

func (f *fake) said() *filebrokerv1.ObjectInfo {
	if f.lie != nil {
		return f.lie
	}
	return f.info
}

func (f *fake) StatObject(_ context.Context, r *filebrokerv1.StatObjectRequest) (*filebrokerv1.StatObjectResponse, error) {
	if r.GetObjectId() != "object-1" {
		return nil, fault.New(fault.NotFound, "test")
	}
	return &filebrokerv1.StatObjectResponse{BindingId: "hs_1", Epoch: 3, Info: f.said()}, nil
}

func (f *fake) ReadObject(_ context.Context, r *filebrokerv1.ReadObjectRequest, out filebrokerv1connect.FileBrokerServiceReadObjectServerStream) error {
	rest := f.content[r.GetOffset() : r.GetOffset()+r.GetLength()]
	if f.short < 0 {
		rest = append(bytes.Clone(rest), make([]byte, -f.short)...)
	}
	for rest = rest[:len(rest)-max(f.short, 0)]; len(rest) > 0; {
		n := min(len(rest), chunk)
		if err := out.Send(&filebrokerv1.ReadObjectResponse{Chunk: rest[:n]}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// A file is stored while it comes, in whatever pieces, and read again in ranges.
func TestSaveAndRead(t *testing.T) {
	for name, size := range map[string]int{"nothing": 0, "a byte": 1, "one part": chunk, "one byte too many": chunk + 1, "many parts": 5*chunk + 7} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			s, client := open(t, "filebroker", f)
			env := s.Envelope()
			data := bytes.Repeat([]byte("cofferdam"), size/9+1)[:size]
			got, err := client.Save(bounded(t), env, runs.FileHead{Name: "a.txt", MIMEType: "text/plain", MaxBytes: 64 << 20}, iotest.OneByteReader(bytes.NewReader(data[:min(size, 99)])))
			if err != nil || got.Size != int64(min(size, 99)) {
				t.Fatalf("byte by byte: %+v, %v", got, err)
			}
			got, err = client.Save(bounded(t), env, runs.FileHead{Name: "a.txt", MIMEType: "text/plain", MaxBytes: 64 << 20}, bytes.NewReader(data))
			want := runs.StoredFile{ID: "object-1", BindingID: env.BindingID, Epoch: env.Epoch, Name: "a.txt", MIMEType: "text/plain", Size: int64(size), SHA256: sha256.Sum256(data)}
			if err != nil || got != want || !bytes.Equal(f.content, data) {
				t.Fatalf("%+v, %v", got, err)
			}
			for _, r := range [][2]int{{0, size}, {size / 2, size - size/2}, {size, 0}} {
				var back []byte
				if err := client.Read(bounded(t), got, int64(r[0]), int64(r[1]), func(b []byte) error { back = append(back, b...); return nil }); err != nil || !bytes.Equal(back, data[r[0]:r[0]+r[1]]) {
					t.Errorf("%v: %d bytes, %v", r, len(back), err)
				}
			}
			if stat, err := client.Stat(bounded(t), "object-1"); err != nil || stat.BindingID != "hs_1" || stat.Epoch != 3 || stat.SHA256 != want.SHA256 {
				t.Errorf("%+v, %v", stat, err)
			}
		})
	}
}

var errCut = errors.New("the body was cut off")

// What does not come whole is never ended as if it had, and its error is given back.
func TestSaveOfWhatBreaksOff(t *testing.T) {
	f := &fake{}
	s, client := open(t, "filebroker", f)
	for _, before := range []int{0, 10, 3 * chunk} {
		body := io.MultiReader(bytes.NewReader(make([]byte, before)), iotest.ErrReader(errCut))
		if got, err := client.Save(bounded(t), s.Envelope(), runs.FileHead{Name: "a", MIMEType: "text/plain", MaxBytes: 1 << 20}, body); !errors.Is(err, errCut) || got.ID != "" {
			t.Errorf("%d bytes before: %+v, %v", before, got, err)
		}
	}
	f = &fake{early: true, refuse: fault.New(fault.Capacity, "test")}
	s, client = open(t, "filebroker", f)
	if _, err := client.Save(bounded(t), s.Envelope(), runs.FileHead{Name: "a", MIMEType: "text/plain", MaxBytes: 64 << 20}, bytes.NewReader(make([]byte, 20*chunk))); !fault.Is(err, fault.Capacity) {
		t.Errorf("refused early: %v", err)
	}
}

// A broker that says what cannot be is not believed, and a file that is shorter or
// longer than it should be never ends cleanly.
func TestABrokerThatIsWrong(t *testing.T) {
	f := &fake{}
	s, client := open(t, "filebroker", f)
	save := func() (runs.StoredFile, error) {
		return client.Save(bounded(t), s.Envelope(), runs.FileHead{Name: "a", MIMEType: "text/plain", MaxBytes: 1 << 20}, bytes.NewReader(make([]byte, 2*chunk)))
	}
	file, err := save()
	if err != nil {
		t.Fatal(err)
	}
	for short, code := range map[int]fault.Code{1: fault.PersistenceFailed, 2 * chunk: fault.PersistenceFailed, -1: fault.Internal} {
		f.short = short
		if err := client.Read(bounded(t), file, 0, file.Size, func([]byte) error { return nil }); !fault.Is(err, code) {
			t.Errorf("%d bytes are missing: %v", short, err)
		}
	}
	f.short = 0
	if err := client.Read(bounded(t), file, 0, file.Size, func([]byte) error { return errCut }); !errors.Is(err, errCut) {
		t.Errorf("the reader's own error: %v", err)
	}
	for _, lie := range []*filebrokerv1.ObjectInfo{{}, {Size: 64<<20 + 1, Sha256: make([]byte, 32)}, {Sha256: make([]byte, 31)}} {
		f.lie = lie
		if _, err := save(); !fault.Is(err, fault.Internal) {
			t.Errorf("%v was believed: %v", lie, err)
		}
	}
	if _, err := client.Stat(bounded(t), "none"); !fault.Is(err, fault.NotFound) {
		t.Errorf("stat: %v", err)
	}
}
