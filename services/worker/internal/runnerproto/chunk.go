package runnerproto

import (
	"encoding/binary"
	"io"
	"net"
)

// ChunkWriter writes a stream as chunks. It is not safe for concurrent use.
type ChunkWriter struct {
	w io.Writer
}

// NewChunkWriter writes to w, which is not closed.
func NewChunkWriter(w io.Writer) *ChunkWriter { return &ChunkWriter{w: w} }

// Write writes p in chunks of at most MaxChunk. The count may fall short of what
// the peer got when there is an error; the stream cannot be used after one.
func (c *ChunkWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), MaxChunk)]
		var head [header]byte
		binary.BigEndian.PutUint32(head[:], uint32(len(part))) //nolint:gosec // at most MaxChunk
		both := net.Buffers{head[:], part}                     // one system call on a socket
		if _, err := both.WriteTo(c.w); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

// Close says that this was all.
func (c *ChunkWriter) Close() error {
	_, err := c.w.Write(make([]byte, header))
	return err
}

// ChunkReader reads what a ChunkWriter wrote. It is not safe for concurrent use.
type ChunkReader struct {
	r    io.Reader
	left uint32
	err  error
}

// NewChunkReader reads from r, and no byte past the end of the stream.
func NewChunkReader(r io.Reader) *ChunkReader { return &ChunkReader{r: r} }

// Read ends with io.EOF where the writer was closed, and with
// io.ErrUnexpectedEOF where the stream broke off before.
func (c *ChunkReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, c.err
	}
	for c.left == 0 && c.err == nil {
		c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p[:min(uint64(len(p)), uint64(c.left))])
	c.left -= uint32(n) //nolint:gosec // at most left
	if err != nil && (c.left > 0 || n == 0) {
		c.err = noEOF(err)
	}
	if n > 0 {
		return n, nil
	}
	return 0, c.err
}

func (c *ChunkReader) next() {
	var head [header]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		c.err = noEOF(err)
		return
	}
	switch size := binary.BigEndian.Uint32(head[:]); {
	case size == 0:
		c.err = io.EOF
	case size > MaxChunk:
		c.err = ErrTooLarge
	default:
		c.left = size
	}
}
