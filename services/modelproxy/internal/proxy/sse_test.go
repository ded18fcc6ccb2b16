package proxy

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readFrames reads all frames; "#" stands for a comment.
func readFrames(src io.Reader, limit int) (frames []string, err error) {
	r := newFrameReader(src, limit)
	for {
		f, err := r.next()
		switch {
		case err != nil:
			return frames, err
		case f.comment:
			frames = append(frames, "#")
		default:
			frames = append(frames, "="+string(f.data))
		}
	}
}

func TestFrameReader(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stream string
		want   []string
		err    error
	}{
		"nothing":                {"", nil, io.EOF},
		"one":                    {"data: x\n\n", []string{"=x"}, io.EOF},
		"no blank":               {"data:x\n\n", []string{"=x"}, io.EOF},
		"only the first blank":   {"data:  x\n\n", []string{"= x"}, io.EOF},
		"CRLF":                   {"data: x\r\n\r\ndata: y\r\n\r\n", []string{"=x", "=y"}, io.EOF},
		"CR":                     {"data: x\r\rdata: y\r\r", []string{"=x", "=y"}, io.EOF},
		"mixed ends":             {"data: x\r\n\ndata: y\n\r\n", []string{"=x", "=y"}, io.EOF},
		"two lines":              {"data: x\ndata: y\n\n", []string{"=x\ny"}, io.EOF},
		"empty data":             {"data:\n\n", []string{"="}, io.EOF},
		"data without colon":     {"data\n\n", []string{"="}, io.EOF},
		"other fields":           {"event: e\nid: 1\nretry: 5\ndatax: no\ndata: x\n\n", []string{"=x"}, io.EOF},
		"event without data":     {"event: e\n\ndata: x\n\n", []string{"=x"}, io.EOF},
		"empty lines":            {"\n\n\ndata: x\n\n\n\n", []string{"=x"}, io.EOF},
		"comment":                {": hi\n\ndata: x\n\n", []string{"#", "=x"}, io.EOF},
		"comment inside":         {"data: x\n:\ndata: y\n\n", []string{"#", "=x\ny"}, io.EOF},
		"byte order mark":        {"\xef\xbb\xbfdata: x\n\n", []string{"=x"}, io.EOF},
		"mark later is a name":   {"data: x\n\n\xef\xbb\xbfdata: y\n\n", []string{"=x"}, io.EOF},
		"cut in a line":          {"data: x\n\ndata: y", []string{"=x"}, errCut},
		"cut after a line":       {"data: x\n\ndata: y\n", []string{"=x"}, errCut},
		"cut after another line": {"data: x\n\nevent: y\n", []string{"=x"}, io.EOF},
		"line too long":          {"data: " + strings.Repeat("x", 100) + "\n\n", nil, errTooLarge},
		"event too long":         {strings.Repeat("data: xxxxxxxxxx\n", 10) + "\n", nil, errTooLarge},
		"name too long":          {strings.Repeat("x", 100), nil, errTooLarge},
		"many comments":          {strings.Repeat(": xxxxxxxxxxxxxxxxxxx\n\n", 10) + "data: x\n\n", append(slices.Repeat([]string{"#"}, 10), "=x"), io.EOF},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for how, src := range map[string]io.Reader{
				"at once":      strings.NewReader(tt.stream),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.stream)),
				"with the end": iotest.DataErrReader(strings.NewReader(tt.stream)),
			} {
				got, err := readFrames(src, 64)
				if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) {
					t.Errorf("%s: %q, %v; want %q, %v", how, got, err, tt.want, tt.err)
				}
			}
		})
	}
}

// A line that ends with CR is there before it is known whether LF follows.
func TestFrameReaderDoesNotWaitBehindCR(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	defer func() { _ = r.Close() }()
	go func() { _, _ = io.WriteString(w, "data: x\r\r") }() // and then nothing
	if f, err := newFrameReader(r, 64).next(); err != nil || string(f.data) != "x" {
		t.Errorf("%q, %v", f.data, err)
	}
}

func FuzzFrameReader(f *testing.F) {
	for _, seed := range []string{"data: x\n\n", "data: x\r\n\r\n:c\rdata\r\r", "\xef\xbb\xbfdata: x\ndata: y\n\n", "data: [DONE]", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		const limit = 256
		atOnce, err := readFrames(strings.NewReader(stream), limit)
		byByte, err2 := readFrames(iotest.OneByteReader(strings.NewReader(stream)), limit)
		if !slices.Equal(atOnce, byByte) || !errors.Is(err2, err) {
			t.Fatalf("at once %q (%v), byte by byte %q (%v)", atOnce, err, byByte, err2)
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, errCut) && !errors.Is(err, errTooLarge) {
			t.Fatalf("ended with %v", err)
		}
		if errors.Is(err, errTooLarge) {
			return
		}
		if want := reference(stream); !slices.Equal(events(atOnce), want) {
			t.Fatalf("%q: frames %q, want %q", stream, events(atOnce), want)
		}
	})
}

func events(frames []string) []string {
	return slices.DeleteFunc(frames, func(f string) bool { return f == "#" })
}

// reference reads events the slow way, with the whole stream in hand.
func reference(stream string) []string {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	stream = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
	lines := strings.Split(stream, "\n")
	var all, data []string
	for _, line := range lines[:len(lines)-1] { // the last was not ended
		name, value, _ := strings.Cut(line, ":")
		switch {
		case line == "" && data != nil:
			all, data = append(all, "="+strings.Join(data, "\n")), nil
		case name == "data":
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return all
}
