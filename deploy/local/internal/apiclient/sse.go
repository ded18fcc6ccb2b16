package apiclient

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxFrame bounds one frame, in bytes. An event has at most 256 KiB.
const maxFrame = 1 << 20

// errFrame says that a frame is larger than maxFrame.
var errFrame = fmt.Errorf("apiclient: a frame of the stream is larger than %d bytes", maxFrame)

// frame is one server-sent event.
type frame struct {
	// id is the last one that the stream gave, up to and with this frame.
	id   string
	name string
	data string
}

// sseReader reads a stream of server-sent events as the HTML standard, section
// 9.2.6, says, in bounded memory. A frame that the stream breaks off in is not
// given.
type sseReader struct {
	in     *bufio.Reader
	begun  bool
	skipLF bool // the last line ended with CR

	id   string
	name string
	data strings.Builder
	any  bool // a data field was there
	size int  // of the lines of this frame
}

func newSSEReader(r io.Reader) *sseReader { return &sseReader{in: bufio.NewReader(r)} }

// next gives the next frame with data, or io.EOF after the last.
func (s *sseReader) next() (frame, error) {
	for {
		line, err := s.line()
		if err != nil {
			return frame{}, err
		}
		if line != "" {
			s.field(line)
			continue
		}
		f := frame{id: s.id, name: s.name, data: strings.TrimSuffix(s.data.String(), "\n")}
		given := s.any
		s.name, s.any, s.size = "", false, 0
		s.data.Reset()
		if given {
			return f, nil
		}
	}
}

// line reads one line, which ends with LF, CR or CR LF. What follows the last end
// is no line.
func (s *sseReader) line() (string, error) {
	var line []byte
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return "", err
		}
		if s.skipLF {
			if s.skipLF = false; c == '\n' {
				continue
			}
		}
		if s.size++; s.size > maxFrame {
			return "", errFrame
		}
		if c == '\n' || c == '\r' {
			s.skipLF = c == '\r'
			break
		}
		line = append(line, c)
	}
	text := string(line)
	if !utf8.ValidString(text) {
		return "", errors.New("apiclient: the stream is not UTF-8")
	}
	if !s.begun {
		s.begun = true
		text = strings.TrimPrefix(text, "\ufeff")
	}
	return text, nil
}

func (s *sseReader) field(line string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "id":
		if !strings.ContainsRune(value, 0) {
			s.id = value
		}
	case "event":
		s.name = value
	case "data":
		s.any = true
		s.data.WriteString(value)
		s.data.WriteByte('\n')
	default: // a comment, or what a later version may send
	}
}
