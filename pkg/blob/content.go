package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// MaxChunkBytes bounds one part of a content on the wire: 256 KiB.
const MaxChunkBytes = 256 << 10

// Errors of a content that is not what was announced.
var (
	// ErrTooLong says that there is more than was announced, or a part is larger
	// than MaxChunkBytes.
	ErrTooLong = errors.New("blob: more than was announced")
	// ErrTooShort says that there is less than was announced.
	ErrTooShort = errors.New("blob: less than was announced")
	// ErrDigest says that the content has another SHA-256 than was announced.
	ErrDigest = errors.New("blob: not the SHA-256 that was announced")
)

// Content is what a content is known by.
type Content struct {
	// Size in bytes.
	Size   int64
	SHA256 [sha256.Size]byte
}

// Of is what b is known by.
func Of(b []byte) Content { return Content{Size: int64(len(b)), SHA256: sha256.Sum256(b)} }

// Parts gives a content, part by part, and io.EOF after the last. What it gave is
// not kept.
type Parts func() ([]byte, error)

// WriteError wraps the error of a writer that failed, to tell it from one of the
// sender.
type WriteError struct{ Err error }

// Error is for the log.
func (e *WriteError) Error() string { return fmt.Sprintf("blob: write: %v", e.Err) }

// Unwrap gives the error of the writer.
func (e *WriteError) Unwrap() error { return e.Err }

// Receive copies a content to w, and is nil only if it is the one that was
// announced: who keeps what w was given after another answer keeps something
// else. Errors: ErrTooLong, ErrTooShort, ErrDigest, *WriteError, and those of
// parts unchanged.
func Receive(w io.Writer, want Content, parts Parts) error {
	got, err := Measure(w, want.Size, parts)
	switch {
	case err != nil:
		return err
	case got.Size < want.Size:
		return ErrTooShort
	case got.SHA256 != want.SHA256:
		return ErrDigest
	}
	return nil
}

// Measure copies a content of at most most bytes to w, and says what it was.
// Errors: ErrTooLong, *WriteError, and those of parts unchanged.
func Measure(w io.Writer, most int64, parts Parts) (Content, error) {
	sum, size := sha256.New(), int64(0)
	for {
		chunk, err := parts()
		if errors.Is(err, io.EOF) {
			return Content{Size: size, SHA256: [sha256.Size]byte(sum.Sum(nil))}, nil
		}
		if err != nil {
			return Content{}, err
		}
		size += int64(len(chunk))
		if len(chunk) > MaxChunkBytes || size > most {
			return Content{}, ErrTooLong
		}
		sum.Write(chunk)
		if _, err := w.Write(chunk); err != nil {
			return Content{}, &WriteError{err}
		}
	}
}

// SendError wraps the error of a receiver that failed, to tell it from one of the
// store.
type SendError struct{ Err error }

// Error is for the log.
func (e *SendError) Error() string { return fmt.Sprintf("blob: send: %v", e.Err) }

// Unwrap gives the error of the receiver.
func (e *SendError) Unwrap() error { return e.Err }

// Send reads a whole content and sends it in parts of at most MaxChunkBytes, the
// last of them only when all of it has the SHA-256 and the size that it should:
// a damaged content never ends cleanly. send must not keep what it is given; it
// is not called for an empty content. It ends with ctx, between two parts. Errors:
// ErrTooLong, ErrTooShort, ErrDigest, *SendError, the cause of ctx, and those of r.
func Send(ctx context.Context, r io.Reader, want Content, send func([]byte) error) error {
	sum, left := sha256.New(), want.Size
	if left == 0 {
		return checkEnd(r, sum.Sum(nil), want)
	}
	buf := make([]byte, min(MaxChunkBytes, left))
	for left > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(left, int64(len(buf)))
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return ErrTooShort
			}
			return err
		}
		sum.Write(buf[:n])
		if left -= n; left == 0 {
			if err := checkEnd(r, sum.Sum(nil), want); err != nil {
				return err
			}
		}
		if err := send(buf[:n]); err != nil {
			return &SendError{err}
		}
	}
	return nil
}

func checkEnd(r io.Reader, sum []byte, want Content) error {
	var more [1]byte
	switch _, err := io.ReadFull(r, more[:]); {
	case err == nil:
		return ErrTooLong
	case !errors.Is(err, io.EOF):
		return err
	case [sha256.Size]byte(sum) != want.SHA256:
		return ErrDigest
	}
	return nil
}
