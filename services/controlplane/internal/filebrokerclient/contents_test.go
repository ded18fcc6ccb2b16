package filebrokerclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
)

func (f *fake) PutContent(_ context.Context, in filebrokerv1connect.FileBrokerServicePutContentServerStream) (*filebrokerv1.PutContentResponse, error) {
	if f.early {
		return nil, f.refuse
	}
	f.content = nil
	for f.parts = 0; ; f.parts++ {
		m, err := in.Receive()
		if errors.Is(err, io.EOF) {
			return &filebrokerv1.PutContentResponse{}, f.refuse
		}
		if err != nil {
			return nil, err
		}
		if (m.GetInfo() != nil) != (f.parts == 0) {
			return nil, fault.New(fault.InvalidRequest, "test")
		}
		if m.GetInfo() != nil {
			f.named = m.GetInfo()
		}
		f.content = append(f.content, m.GetChunk()...)
	}
}

func (f *fake) KeepContent(_ context.Context, r *filebrokerv1.KeepContentRequest) (*filebrokerv1.KeepContentResponse, error) {
	f.named = r.GetContent()
	return &filebrokerv1.KeepContentResponse{}, f.refuse
}

func TestPutContent(t *testing.T) {
	f := &fake{}
	_, c := open(t, "filebroker", f)
	for _, size := range []uint32{0, 1, chunk, 3*chunk + 1} {
		content := bytes.Repeat([]byte("x"), int(size))
		of := blob.Of(content)
		if err := c.PutContent(bounded(t), of, bytes.NewReader(content)); err != nil || !bytes.Equal(f.content, content) || !bytes.Equal(f.named.GetSha256(), of.SHA256[:]) || f.named.GetSize() != uint64(size) {
			t.Errorf("%d bytes: %d came, named %v, %v", size, len(f.content), f.named, err)
		}
	}
	f.refuse = fault.New(fault.InvalidRequest, "test")
	if err := c.PutContent(bounded(t), blob.Of(nil), strings.NewReader("x")); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("got %v", err)
	}
	f.early = true
	if err := c.PutContent(bounded(t), blob.Of(nil), bytes.NewReader(make([]byte, 8<<20))); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("refused early: %v", err)
	}
	broken := errors.New("the disk")
	if err := c.PutContent(bounded(t), blob.Of(nil), io.MultiReader(strings.NewReader("x"), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestKeepContent(t *testing.T) {
	f := &fake{}
	_, c := open(t, "filebroker", f)
	of := blob.Of([]byte("content"))
	if err := c.KeepContent(bounded(t), of); err != nil || !bytes.Equal(f.named.GetSha256(), of.SHA256[:]) || f.named.GetSize() != 7 {
		t.Errorf("%v, %v", f.named, err)
	}
	f.refuse = fault.New(fault.NotFound, "test")
	if err := c.KeepContent(bounded(t), of); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}

// The handle for what an agent has is that of the run and generation: every replica, and
// every repeat, asks for it in the same words.
func TestIssueContents(t *testing.T) {
	f := &fake{}
	s, c := open(t, "filebroker", f)
	sums := [][sha256.Size]byte{sha256.Sum256([]byte("a")), sha256.Sum256([]byte("b"))}
	for range 2 {
		env := s.Envelope()
		h, err := c.IssueContents(bounded(t), env, sums)
		if err != nil || h != "handle-1" || len(f.keys) != 1 {
			t.Fatalf("%q, %v, keys %v", h, err, f.keys)
		}
		r := f.issued
		if r.GetDirection() != filebrokerv1.Direction_DIRECTION_DOWNLOAD || r.GetObjectId() != "" || len(r.GetContents()) != 2 || !bytes.Equal(r.GetContents()[1], sums[1][:]) || !r.GetExpiresAt().AsTime().Equal(env.Deadline) {
			t.Errorf("asked for %v", r)
		}
	}
}
