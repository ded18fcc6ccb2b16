package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"cofferdam.dev/pkg/blob"
)

var errBroke = errors.New("it broke")

func split(content []byte, size int, last error) blob.Parts {
	return func() ([]byte, error) {
		if len(content) == 0 {
			return nil, last
		}
		n := min(size, len(content))
		part := content[:n]
		content = content[n:]
		return part, nil
	}
}

func TestReceive(t *testing.T) {
	content := bytes.Repeat([]byte("content "), 1000)
	other := blob.Of(content)
	other.SHA256[0] ^= 1
	for name, c := range map[string]struct {
		want  blob.Content
		parts blob.Parts
		err   error
	}{
		"whole":             {blob.Of(content), split(content, 999, io.EOF), nil},
		"empty":             {blob.Of(nil), split(nil, 1, io.EOF), nil},
		"one byte less":     {blob.Of(content), split(content[1:], 999, io.EOF), blob.ErrTooShort},
		"one byte more":     {blob.Of(content[1:]), split(content, 999, io.EOF), blob.ErrTooLong},
		"another digest":    {other, split(content, 999, io.EOF), blob.ErrDigest},
		"the stream breaks": {blob.Of(content), split(content, 999, errBroke), errBroke},
		"part too large":    {blob.Of(make([]byte, blob.MaxChunkBytes+1)), split(make([]byte, blob.MaxChunkBytes+1), blob.MaxChunkBytes+1, io.EOF), blob.ErrTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := blob.Receive(&got, c.want, c.parts); !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if c.err == nil && blob.Of(got.Bytes()) != c.want {
				t.Errorf("%d bytes arrived otherwise", got.Len())
			}
		})
	}
}

func TestReceiveTellsWriterFromSender(t *testing.T) {
	r, w := io.Pipe()
	_ = r.CloseWithError(errBroke)
	var we *blob.WriteError
	if err := blob.Receive(w, blob.Of([]byte("x")), split([]byte("x"), 1, io.EOF)); !errors.As(err, &we) || !errors.Is(err, errBroke) {
		t.Errorf("got %v", err)
	}
}

// The last part never leaves for a content that is not the right one.
func TestSend(t *testing.T) {
	content := bytes.Repeat([]byte("content "), 100_000)
	other := blob.Of(content)
	other.SHA256[0] ^= 1
	for name, c := range map[string]struct {
		want blob.Content
		r    io.Reader
		err  error
	}{
		"whole":          {blob.Of(content), bytes.NewReader(content), nil},
		"empty":          {blob.Of(nil), bytes.NewReader(nil), nil},
		"one byte less":  {blob.Of(content), bytes.NewReader(content[1:]), blob.ErrTooShort},
		"one byte more":  {blob.Of(content[1:]), bytes.NewReader(content), blob.ErrTooLong},
		"more than none": {blob.Of(nil), bytes.NewReader(content), blob.ErrTooLong},
		"another digest": {other, bytes.NewReader(content), blob.ErrDigest},
		"store breaks":   {blob.Of(content), io.MultiReader(bytes.NewReader(content[:9]), broken{}), errBroke},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			err := blob.Send(t.Context(), c.r, c.want, func(p []byte) error { got.Write(p); return nil })
			if !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
			if whole := int64(got.Len()) >= c.want.Size; whole != (c.err == nil) && c.want.Size > 0 {
				t.Errorf("%d of %d bytes left", got.Len(), c.want.Size)
			}
		})
	}
}

func TestSendEnds(t *testing.T) {
	content := make([]byte, 2*blob.MaxChunkBytes)
	ctx, cancel := context.WithCancelCause(t.Context())
	n := 0
	err := blob.Send(ctx, bytes.NewReader(content), blob.Of(content), func([]byte) error { n++; cancel(errBroke); return nil })
	if !errors.Is(err, errBroke) || n != 1 {
		t.Errorf("%v after %d parts", err, n)
	}
	var se *blob.SendError
	err = blob.Send(t.Context(), bytes.NewReader(content), blob.Of(content), func([]byte) error { return errBroke })
	if !errors.As(err, &se) || !errors.Is(err, errBroke) {
		t.Errorf("got %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroke }
