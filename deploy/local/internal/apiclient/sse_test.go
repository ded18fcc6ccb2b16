package apiclient

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func frames(t *testing.T, stream string) ([]frame, error) {
	t.Helper()
	return read(t, iotest.OneByteReader(strings.NewReader(stream)))
}

func read(t *testing.T, stream io.Reader) ([]frame, error) {
	t.Helper()
	in := newSSEReader(stream)
	var out []frame
	for {
		f, err := in.next()
		if err != nil {
			return out, err
		}
		out = append(out, f)
	}
}

func TestFramesOfAStream(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         []frame
	}{
		{"empty", "", nil},
		{"one", "id: 3\nevent: run.started\ndata: {}\n\n", []frame{{"3", "run.started", "{}"}}},
		{"CRLF", "id: 3\r\ndata: a\r\n\r\n", []frame{{"3", "", "a"}}},
		{"CR", "data: a\r\rdata: b\r\r", []frame{{"", "", "a"}, {"", "", "b"}}},
		{"several lines of data", "data: a\ndata:\ndata:  b\n\n", []frame{{"", "", "a\n\n b"}}},
		{"comments", ": \n\n: still here\ndata: a\n\n", []frame{{"", "", "a"}}},
		{"the id goes on", "id: 1\ndata: a\n\ndata: b\n\n", []frame{{"1", "", "a"}, {"1", "", "b"}}},
		{"the name does not", "event: x\ndata: a\n\ndata: b\n\n", []frame{{"", "x", "a"}, {"", "", "b"}}},
		{"an id without data", "id: 1\n\ndata: b\n\n", []frame{{"1", "", "b"}}},
		{"an id with NUL", "id: 1\nid: 2\x00\ndata: b\n\n", []frame{{"1", "", "b"}}},
		{"empty data", "data\n\n", []frame{{"", "", ""}}},
		{"a byte order mark", "\ufeffdata: a\n\n", []frame{{"", "", "a"}}},
		{"broken off in a frame", "data: a\n\ndata: b\n", []frame{{"", "", "a"}}},
		{"broken off in a line", "data: a\n\ndata: b", []frame{{"", "", "a"}}},
		{"unknown fields", "retry: 5\nfoo: bar\ndata: a\n\n", []frame{{"", "", "a"}}},
	} {
		got, err := frames(t, c.stream)
		if !slices.Equal(got, c.want) || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

func TestAFrameHasABound(t *testing.T) {
	for name, stream := range map[string]string{
		"one line":   "data: " + strings.Repeat("x", maxFrame+1),
		"many lines": strings.Repeat("data: xxxxxxxxxxxxxxxx\n", maxFrame/16),
		"a comment":  ":" + strings.Repeat("x", 2*maxFrame),
	} {
		if got, err := read(t, strings.NewReader(stream)); !errors.Is(err, errFrame) {
			t.Errorf("%s: %d frames, %v", name, len(got), err)
		}
	}
	// The bound is that of a frame, not of a stream.
	long := strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n\n", 2*maxFrame/1000)
	if got, err := read(t, strings.NewReader(long)); !errors.Is(err, io.EOF) || len(got) != 2*maxFrame/1000 {
		t.Errorf("%d frames, %v", len(got), err)
	}
}

func TestWhatIsNotUTF8IsRefused(t *testing.T) {
	if got, err := frames(t, "data: \xff\n\n"); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", got, err)
	}
}

// naive reads a stream that is there as a whole, the way the standard puts it.
func naive(stream string) []frame {
	stream = strings.TrimPrefix(stream, "\ufeff")
	lines := regexp.MustCompile("\r\n|\n|\r").Split(stream, -1)
	lines = lines[:len(lines)-1]
	var out []frame
	var f frame
	var data []string
	for _, line := range lines {
		if line == "" {
			if data != nil {
				f.data = strings.Join(data, "\n")
				out = append(out, f)
			}
			f, data = frame{id: f.id}, nil
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "data":
			data = append(data, value)
		case name == "event":
			f.name = value
		case name == "id" && !strings.Contains(value, "\x00"):
			f.id = value
		}
	}
	return out
}

func FuzzSSE(f *testing.F) {
	f.Add("id: 1\nevent: e\ndata: a\ndata: b\r\n\r\n: c\n\ndata\n\n")
	f.Add("\ufeffdata:x\r\rid\n\n")
	f.Add("data: a\n\r\ndata: b\r\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		if len(stream) > maxFrame || !utf8.ValidString(stream) {
			return // another error, tested above
		}
		got, err := frames(t, stream)
		if want := naive(stream); !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
			t.Errorf("%q\n got %q, %v\nwant %q", stream, got, err, want)
		}
	})
}
