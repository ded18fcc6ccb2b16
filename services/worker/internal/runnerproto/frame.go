package runnerproto

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"cofferdam.dev/pkg/strictjson"
)

// ErrTooLarge is a frame or chunk beyond its bound.
var ErrTooLarge = errors.New("runnerproto: larger than allowed")

const header = 4

// WriteFrame writes v as one frame of at most limit bytes, in one Write.
func WriteFrame(w io.Writer, v any, limit int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("runnerproto: %w", err)
	}
	if len(body) > limit {
		return ErrTooLarge
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, header+len(body)), uint32(len(body))) //nolint:gosec // at most limit
	if _, err := w.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("runnerproto: %w", err)
	}
	return nil
}

// ReadFrame reads one frame of at most limit bytes into v, strictly: unknown,
// doubled and mistyped fields are refused. The error is io.EOF where the peer
// hung up between two frames.
func ReadFrame(r io.Reader, v any, limit int) error {
	var head [header]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return fmt.Errorf("runnerproto: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(limit) {
		return ErrTooLarge
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("runnerproto: %w", noEOF(err))
	}
	// Arguments and environment are opaque, and may have control characters.
	if err := strictjson.Unmarshal(body, v, strictjson.Options{MaxBytes: limit, AllowControls: true}); err != nil {
		return fmt.Errorf("runnerproto: %w", err)
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
