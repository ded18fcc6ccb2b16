//go:build linux

package runner_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// A program that writes faster than it is read waits: nothing is lost, and nobody
// holds what was not read.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const size = 100 << 20
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell(`head -c 104857600 /dev/zero | tr '\0' y; echo done >&2`))
		before := resident(t, s)
		small := make([]byte, 1000)
		for range 100 {
			_, err := io.ReadFull(p.Stdout(), small)
			must(t, err)
		}
		if strings.Contains(s.Log.String(), `"text":"done"`) {
			t.Error("100 MiB went to a reader that took 100 kB")
		}
		n, err := io.Copy(io.Discard, p.Stdout())
		must(t, err)
		if n != size-100*1000 {
			t.Errorf("%d bytes", n)
		}
		ended(t, p)
		if grown := resident(t, s) - before; grown > 32<<20 { // race detector included
			t.Errorf("the runner grew by %d MiB", grown>>20)
		}
	})
}

func resident(t testing.TB, s *runnertest.Stand) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", itoa(s.Process.Pid), "statm"))
	must(t, err)
	var pages int
	for _, c := range strings.Fields(string(b))[1] {
		pages = pages*10 + int(c-'0')
	}
	return pages * os.Getpagesize()
}

// Both directions carry any bytes.
func TestStreamsAreOpaque(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		content := make([]byte, 3<<20)
		for i := range content {
			content[i] = byte(i * i >> 3 & 0xff)
		}
		p := begin(t, w, hosted.Command{Path: "cat"})
		sent := make(chan error, 1)
		go func() {
			_, err := p.Stdin().Write(content)
			sent <- errors.Join(err, p.Stdin().Close())
		}()
		got, err := io.ReadAll(p.Stdout())
		must(t, errors.Join(err, <-sent))
		if sha256.Sum256(got) != sha256.Sum256(content) {
			t.Error("other bytes came back")
		}
	})
}

// A program that takes no input does not hold up who writes to it longer than it
// lives.
func TestInputEnds(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell("echo ready; exec sleep 600"))
		line(t, p)
		wrote := make(chan error, 1)
		go func() {
			_, err := p.Stdin().Write(make([]byte, 8<<20))
			wrote <- err
		}()
		select {
		case err := <-wrote:
			t.Fatalf("8 MiB were taken by nobody: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
		must(t, w.KillAll(t.Context(), 0))
		if err := <-wrote; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write: %v", err)
		}
		p = begin(t, w, shell("exec <&-; echo ready; exec sleep 600")) // closes it, and lives on
		line(t, p)
		waittest.Until(t, "the write fails", func() bool { _, err := p.Stdin().Write([]byte("x")); return errors.Is(err, io.ErrClosedPipe) })
	})
}

// Closing the input does not wait for the program, and what was written before
// arrives.
func TestInputClosesAtOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		p := begin(t, w, shell("read go; sleep 0.2; wc -c"))
		_, err := io.WriteString(p.Stdin(), "go\n")
		must(t, err)
		n := 0
		for range 40 { // less than the buffers on the way hold
			m, err := p.Stdin().Write(make([]byte, 4<<10))
			must(t, err)
			n += m
		}
		must(t, p.Stdin().Close())
		if got := strings.TrimSpace(line(t, p)); got != itoa(n) {
			t.Errorf("%s bytes arrived of %d", got, n)
		}
	})
}

// A call whose context ends leaves no program, whenever that is.
func TestStartIsTakenBack(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		for i := range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
			p, err := w.Start(ctx, shell("exec sleep 600"))
			cancel()
			if err == nil {
				must(t, w.KillAll(t.Context(), 0))
				ended(t, p)
				continue
			}
			wantCode(t, err, fault.DeadlineExceeded)
			waittest.Until(t, "no process is left", func() bool { return len(processes(t, s)) == 0 })
		}
		if got := output(t, w, "echo still works"); got != "still works\n" {
			t.Errorf("%q", got)
		}
	})
}

// A runner that does not answer holds nobody longer than the context says.
func TestRunnerHangs(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t)
	w := s.Dial(t)
	p := begin(t, w, hosted.Command{Path: "cat"})
	must(t, s.Process.Signal(unix.SIGSTOP))
	defer func() { must(t, s.Process.Signal(unix.SIGCONT)) }()
	large := strings.Repeat("x", 400<<10)
	for name, call := range map[string]func(ctx context.Context) error{
		"kill":   func(ctx context.Context) error { return w.KillAll(ctx, time.Hour) },
		"limits": func(ctx context.Context) error { _, err := w.Limits(ctx); return err },
		"write": func(ctx context.Context) error {
			return w.WriteFile(ctx, hosted.File{Path: hosted.Home + "/x"}, strings.NewReader(large))
		},
		"archive": func(ctx context.Context) error {
			return w.Archive(ctx, hosted.Paths{Include: []string{"x"}}, 1, io.Discard)
		},
		"start": func(ctx context.Context) error { _, err := w.Start(ctx, shell("true")); return err },
		"dial":  func(ctx context.Context) error { _, err := runnerclient.Dial(ctx, s.Address); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begun := time.Now()
		err := call(ctx)
		cancel()
		if err == nil || time.Since(begun) > 10*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(begun))
		}
	}
	must(t, w.Close()) // waits for nobody either
	ended(t, p)
}

// What breaks the protocol ends the connection, and with it everything.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for name, garbage := range map[string]string{
		"no frame":        "GET / HTTP/1.1\r\n\r\n",
		"too large":       frame(runnerproto.MaxRequest + 1)[:4],
		"not JSON":        framed(`{"id":`),
		"unknown call":    framed(`{"id":1,"run":{}}`),
		"no call":         framed(`{"id":1}`),
		"two calls":       framed(`{"id":1,"thaw":{},"freeze":{}}`),
		"doubled":         framed(`{"id":1,"kill":{"grace_ms":1,"grace_ms":2}}`),
		"case":            framed(`{"id":1,"Thaw":{}}`),
		"grace":           framed(`{"id":1,"kill":{"grace_ms":-1}}`),
		"id again":        framed(`{"id":1,"kill":{"grace_ms":200000}}`) + framed(`{"id":1,"limits":{}}`),
		"not in the type": framed(`{"id":-1,"thaw":{}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := runnertest.Start(t)
			conn, opened := control(t, s)
			in, out := stream(t, s, opened.Session, 1), stream(t, s, opened.Session, 2)
			must(t, runnerproto.WriteFrame(conn, runnerproto.Request{ID: 1, Start: &runnerproto.Start{
				Path: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo ready; while :; do sleep 600; done"}, Stdin: 1, Stdout: 2,
			}}, runnerproto.MaxRequest))
			var r runnerproto.Reply
			must(t, runnerproto.ReadFrame(conn, &r, runnerproto.MaxReply))
			if r.Started == nil {
				t.Fatalf("%+v", r)
			}
			if _, err := io.ReadFull(runnerproto.NewChunkReader(out), make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			_, err := io.WriteString(conn, garbage)
			must(t, err)
			must(t, conn.SetReadDeadline(time.Now().Add(bound)))
			if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the connection goes on: %v", err)
			}
			waittest.Until(t, "no process is left", func() bool { return len(processes(t, s)) == 0 })
			w := s.Dial(t)
			if got := output(t, w, "echo the next works"); got != "the next works\n" {
				t.Errorf("%q", got)
			}
			_ = in
		})
	}
}

// Input that breaks off was given up with the program: half of what it had to say
// is not acted on.
func TestInputBreaksOff(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t)
	conn, opened := control(t, s)
	in := stream(t, s, opened.Session, 1)
	stream(t, s, opened.Session, 2)
	must(t, runnerproto.WriteFrame(conn, runnerproto.Request{ID: 1, Start: &runnerproto.Start{
		Path: "/bin/sh", Args: []string{"-c", "cat > half; sleep 600"}, Stdin: 1, Stdout: 2,
	}}, runnerproto.MaxRequest))
	var r runnerproto.Reply
	must(t, runnerproto.ReadFrame(conn, &r, runnerproto.MaxReply))
	if r.Started == nil {
		t.Fatalf("%+v", r)
	}
	_, err := io.WriteString(in, "\x00\x00\x00\x09half")
	must(t, errors.Join(err, in.Close()))
	must(t, runnerproto.WriteFrame(conn, runnerproto.Request{ID: 2, Wait: &runnerproto.Wait{Program: r.Started.Program}}, runnerproto.MaxRequest))
	must(t, runnerproto.ReadFrame(conn, &r, runnerproto.MaxReply))
	if r.Ended == nil || r.Ended.Signal != "SIGKILL" {
		t.Errorf("%+v", r)
	}
}

// The program's user does not get in, even where the socket stands open to it.
func TestProgramCannotConnect(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t)
	w := s.Dial(t)
	apart(t, w)
	socket := strings.TrimPrefix(s.Address, "unix://")
	must(t, errors.Join(os.Chmod(filepath.Dir(socket), 0o777), os.Chmod(socket, 0o666)))
	script := `use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "no socket: $!"; print "connected\n"; $| = 1;
$s->autoflush(1); local $SIG{PIPE} = "IGNORE"; print $s "\x00\x00\x00\x0d{\"version\":1}"; my $n = read $s, my $b, 4; print "got ", $n || 0, "\n"`
	p := begin(t, w, hosted.Command{Path: "perl", Args: []string{"-e", script, socket}})
	got, err := io.ReadAll(p.Stdout())
	must(t, err)
	if string(got) != "connected\ngot 0\n" {
		t.Errorf("%q", got)
	}
}

// Nobody gets in without a proper opening, and nobody gets at another's streams.
func TestOpening(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t)
	w := s.Dial(t)
	for name, opening := range map[string]string{
		"version":      framed(`{"version":2}`),
		"no version":   framed(`{}`),
		"unknown":      framed(`{"version":1,"x":1}`),
		"other":        framed(`{"version":1,"session":"guess","stream":1}`),
		"too large":    frame(runnerproto.MaxOpening + 1)[:4],
		"nothing":      "",
		"half a frame": framed(`{"version":1}`)[:6],
	} {
		conn := dial(t, s)
		_, err := io.WriteString(conn, opening)
		must(t, err)
		must(t, conn.CloseWrite())
		var o runnerproto.Opened
		if err := runnerproto.ReadFrame(conn, &o, runnerproto.MaxOpening); err == nil && o.Error == nil {
			t.Errorf("%s: taken: %+v", name, o)
		}
	}
	if got := output(t, w, "echo untouched"); got != "untouched\n" {
		t.Errorf("%q", got)
	}
}

// Streams that are opened and never used give way, and calls beyond the bound are
// told so.
func TestBoundsOfASession(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t)
	conn, opened := control(t, s)
	streams := make([]net.Conn, 0, 2*runnerproto.MaxStreams)
	for i := range 2 * runnerproto.MaxStreams {
		streams = append(streams, stream(t, s, opened.Session, uint64(i+1)))
	}
	if _, err := streams[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest is still open: %v", err)
	}
	var in bytes.Buffer
	must(t, runnerproto.WriteFrame(&in, runnerproto.Request{ID: 1, Start: &runnerproto.Start{Path: "/bin/cat", Stdin: 2*runnerproto.MaxStreams - 1, Stdout: 2 * runnerproto.MaxStreams}}, runnerproto.MaxRequest))
	_, err := conn.Write(in.Bytes())
	must(t, err)
	var r runnerproto.Reply
	must(t, runnerproto.ReadFrame(conn, &r, runnerproto.MaxReply))
	if r.Started == nil {
		t.Fatalf("%+v", r.Error)
	}
	for i := range runnerproto.MaxCalls + 1 {
		must(t, runnerproto.WriteFrame(conn, runnerproto.Request{ID: uint64(i + 2), Wait: &runnerproto.Wait{Program: r.Started.Program}}, runnerproto.MaxRequest))
	}
	must(t, runnerproto.ReadFrame(conn, &r, runnerproto.MaxReply))
	if r.Error == nil || r.Error.Code != runnerproto.Capacity {
		t.Errorf("%+v", r)
	}
}

func frame(size uint32) string { return string(binary.BigEndian.AppendUint32(nil, size)) }

func framed(body string) string { return frame(uint32(len(body))) + body } //nolint:gosec // short

func dial(t testing.TB, s *runnertest.Stand) *net.UnixConn {
	t.Helper()
	addr := &net.UnixAddr{Name: strings.TrimPrefix(s.Address, "unix://"), Net: "unix"}
	var conn *net.UnixConn
	waittest.Until(t, "the runner listens", func() bool {
		var err error
		conn, err = net.DialUnix("unix", nil, addr)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(bound)))
	return conn
}

func control(t testing.TB, s *runnertest.Stand) (net.Conn, runnerproto.Opened) {
	t.Helper()
	return opening(t, s, runnerproto.Opening{Version: runnerproto.Version})
}

func stream(t testing.TB, s *runnertest.Stand, session string, id uint64) net.Conn {
	t.Helper()
	conn, _ := opening(t, s, runnerproto.Opening{Version: runnerproto.Version, Session: session, Stream: id})
	return conn
}

func opening(t testing.TB, s *runnertest.Stand, o runnerproto.Opening) (net.Conn, runnerproto.Opened) {
	t.Helper()
	conn := dial(t, s)
	must(t, runnerproto.WriteFrame(conn, o, runnerproto.MaxOpening))
	var opened runnerproto.Opened
	must(t, runnerproto.ReadFrame(conn, &opened, runnerproto.MaxOpening))
	if opened.Error != nil {
		t.Fatal(opened.Error)
	}
	return conn, opened
}
