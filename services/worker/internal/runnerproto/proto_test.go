package runnerproto_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A frame comes back as it was, and no byte after it is read.
func TestFrame(t *testing.T) {
	t.Parallel()
	want := runnerproto.Request{ID: 7, Start: &runnerproto.Start{Path: "sh", Args: []string{"-c", "a\nb\x01"}, Env: []string{"A=ü"}, Stdin: 1, Stdout: 2}}
	var b bytes.Buffer
	must(t, runnerproto.WriteFrame(&b, want, runnerproto.MaxRequest))
	b.WriteString("next")
	var got runnerproto.Request
	must(t, runnerproto.ReadFrame(iotest.OneByteReader(&b), &got, runnerproto.MaxRequest))
	if got.ID != 7 || got.Start == nil || strings.Join(got.Start.Args, " ") != "-c a\nb\x01" || got.Validate() != nil || b.String() != "next" {
		t.Errorf("%+v, left %q", got, b.String())
	}
}

// What is larger than its bound is neither written nor held.
func TestFrameBound(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	err := runnerproto.WriteFrame(&b, runnerproto.Request{Write: &runnerproto.Write{Path: strings.Repeat("x", 100)}}, 50)
	if !errors.Is(err, runnerproto.ErrTooLarge) || b.Len() > 0 {
		t.Errorf("%v, %d bytes", err, b.Len())
	}
	var r runnerproto.Request
	head := binary.BigEndian.AppendUint32(nil, 51)
	if err := runnerproto.ReadFrame(bytes.NewReader(append(head, make([]byte, 51)...)), &r, 50); !errors.Is(err, runnerproto.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	for _, cut := range []string{"", "\x00\x00", "\x00\x00\x00\x05{"} {
		err := runnerproto.ReadFrame(strings.NewReader(cut), &r, 50)
		if cut == "" && !errors.Is(err, io.EOF) || cut != "" && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", cut, err)
		}
	}
}

// The end of a stream that was meant is io.EOF, and any other is not.
func TestChunks(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789"), 20_000) // more than one chunk
	var b bytes.Buffer
	w := runnerproto.NewChunkWriter(&b)
	n, err := w.Write(content)
	must(t, err)
	if n != len(content) {
		t.Errorf("%d bytes", n)
	}
	_, err = w.Write(nil)
	must(t, err)
	cut := b.Len()
	must(t, w.Close())
	b.WriteString("next")
	whole := b.Bytes()

	rest := bytes.NewReader(whole)
	got, err := io.ReadAll(runnerproto.NewChunkReader(iotest.HalfReader(rest)))
	must(t, err)
	left, _ := io.ReadAll(rest)
	if !bytes.Equal(got, content) || string(left) != "next" {
		t.Errorf("%d bytes, left %q", len(got), left)
	}
	for _, at := range []int{0, 1, 4, 100, cut - 1, cut, cut + 1} {
		_, err := io.ReadAll(runnerproto.NewChunkReader(bytes.NewReader(whole[:at])))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", at, err)
		}
	}
	if _, err := io.ReadAll(runnerproto.NewChunkReader(strings.NewReader("\xff\xff\xff\xff"))); !errors.Is(err, runnerproto.ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// An error says its code, and its cause stays where it is.
func TestErrorOnTheWire(t *testing.T) {
	t.Parallel()
	e := runnerproto.Fail(errors.New("/home/agent/private"), runnerproto.Denied, "the file")
	b, err := json.Marshal(e)
	must(t, err)
	if string(b) != `{"code":"access_denied","detail":"the file"}` {
		t.Errorf("%s", b)
	}
	if runnerproto.From(errors.New("private")).Detail != "" || runnerproto.From(nil) != nil {
		t.Error("a foreign error tells its text")
	}
}

// What the runner says of an end arrives whole.
func TestEnded(t *testing.T) {
	t.Parallel()
	want := runnerproto.Ended{Code: -1, Signal: "SIGKILL", Limit: "memory", Reason: runnerproto.ReasonRan}
	var b bytes.Buffer
	must(t, runnerproto.WriteFrame(&b, runnerproto.Reply{Ended: &want}, runnerproto.MaxReply))
	var got runnerproto.Reply
	must(t, runnerproto.ReadFrame(&b, &got, runnerproto.MaxReply))
	if exit := (hosted.Exit{Code: -1, Signal: "SIGKILL", Limit: "memory", Reason: runnerproto.ReasonRan}); got.Ended == nil || got.Ended.Exit() != exit {
		t.Errorf("%+v", got.Ended)
	}
}

// FuzzRequest: no frame panics or is misread: what is taken is one call, and the
// same again when it is written and read.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"start":{"path":"sh","args":["-c"],"env":["A=1"],"dir":"/","stdin":1,"stdout":2}}`, `{"id":2,"kill":{"grace_ms":5}}`,
		`{"id":3,"freeze":{}}`, `{"id":4,"write":{"path":"/home/agent/x","stream":1}}`, `{"id":5,"archive":{"include":["*"],"max_bytes":1,"stream":1}}`,
		`{"id":6,"restore":{"stream":1}}`, `{"id":7,"limits":{},"reset":{}}`, `{"id":9,"reset":{"keep_workspace":true}}`, `{"id":8,"wait":{"program":1}}`, `{"id":1,"cancel":{}}`,
	} {
		f.Add(append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)) //nolint:gosec // short
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r, again runnerproto.Request
		if runnerproto.ReadFrame(bytes.NewReader(data), &r, runnerproto.MaxRequest) != nil || r.Validate() != nil {
			return
		}
		var first, second bytes.Buffer
		if err := runnerproto.WriteFrame(&first, r, runnerproto.MaxRequest); err != nil {
			if errors.Is(err, runnerproto.ErrTooLarge) { // escapes grow
				return
			}
			t.Fatal(err)
		}
		sent := bytes.Clone(first.Bytes())
		if err := runnerproto.ReadFrame(&first, &again, runnerproto.MaxRequest); err != nil || again.Validate() != nil {
			t.Fatalf("%v: %s", err, sent)
		}
		must(t, runnerproto.WriteFrame(&second, again, runnerproto.MaxRequest))
		if !bytes.Equal(sent, second.Bytes()) {
			t.Fatalf("%s became %s", sent, second.Bytes())
		}
	})
}

// FuzzReply is the same for what the worker reads.
func FuzzReply(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x48" + `{"id":1,"error":{"code":"protocol","detail":"x"},"started":{"program":1}}`))
	f.Add([]byte("\x00\x00\x00\x2a" + `{"id":1,"ended":{"code":-1,"signal":"X"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r runnerproto.Reply
		if runnerproto.ReadFrame(bytes.NewReader(data), &r, runnerproto.MaxReply) == nil {
			must(t, runnerproto.WriteFrame(io.Discard, r, 16*runnerproto.MaxReply))
		}
		var o runnerproto.Opened
		_ = runnerproto.ReadFrame(bytes.NewReader(data), &o, runnerproto.MaxOpening)
	})
}

// FuzzChunks: no stream panics, gives more than came, or ends well without its end.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x03abc\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := io.ReadAll(runnerproto.NewChunkReader(bytes.NewReader(data)))
		if len(got) > len(data) {
			t.Fatalf("%d bytes of %d", len(got), len(data))
		}
		if err == nil && !bytes.Contains(data, make([]byte, 4)) {
			t.Fatal("ended without an end")
		}
	})
}
