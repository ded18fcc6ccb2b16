package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// frame is one event of a stream. Of an event only its data counts on this
// wire; names, ids and retry times are dropped.
type frame struct {
	// data of the event, its lines joined by "\n".
	data []byte
	// comment is a line that only shows that the upstream is alive.
	comment bool
}

// frameReader reads server-sent events as the HTML standard defines them: lines
// end with LF, CR or CRLF, an empty line ends an event, and an event that the
// stream's end cuts off is none.
type frameReader struct {
	src   *bufio.Reader
	limit int // of one event, in bytes

	line   []byte
	data   []byte
	size   int // of all lines of the event so far
	isData bool
	skipLF bool
	begun  bool
}

func newFrameReader(src io.Reader, limit int) *frameReader {
	return &frameReader{src: bufio.NewReaderSize(src, 16<<10), limit: limit}
}

// next reads one frame; its data are valid until the next call. Errors: io.EOF
// where the stream ends between events, errCut where it ends within one,
// errTooLarge, and what the source returns.
func (r *frameReader) next() (frame, error) {
	for {
		line, err := r.readLine()
		if err != nil {
			return frame{}, err
		}
		switch {
		case len(line) == 0:
			if f, ok := r.dispatch(); ok {
				return f, nil
			}
		case line[0] == ':':
			return frame{comment: true}, nil
		default:
			r.field(line)
		}
	}
}

// dispatch ends an event; one without data is none.
func (r *frameReader) dispatch() (frame, bool) {
	f := frame{data: r.data}
	ok := r.isData
	r.data, r.size, r.isData = r.data[:0], 0, false
	return f, ok
}

func (r *frameReader) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if string(name) != "data" {
		return
	}
	value = bytes.TrimPrefix(value, []byte(" "))
	if r.isData {
		r.data = append(r.data, '\n')
	}
	r.data = append(r.data, value...)
	r.isData = true
}

// readLine reads to the end of a line, which is left out.
func (r *frameReader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		b, err := r.src.ReadByte()
		if err != nil {
			return nil, r.ended(err)
		}
		if r.skipLF {
			r.skipLF = false
			if b == '\n' {
				continue
			}
		}
		if b == '\n' || b == '\r' {
			// A CR ends the line at once: whether an LF follows may be known late.
			r.skipLF = b == '\r'
			return r.withoutBOM(), nil
		}
		if r.size++; r.size > r.limit {
			return nil, errTooLarge
		}
		r.line = append(r.line, b)
	}
}

// withoutBOM takes away the mark that may begin a stream.
func (r *frameReader) withoutBOM() []byte {
	line := r.line
	if !r.begun {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	r.begun = true
	return line
}

func (r *frameReader) ended(err error) error {
	if errors.Is(err, io.EOF) && (len(r.line) > 0 || r.isData) {
		return errCut
	}
	return err
}
