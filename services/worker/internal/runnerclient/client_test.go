package runnerclient_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runnerclient"
	"cofferdam.dev/services/worker/internal/runnerproto"
)

// What the client does with a real runner is tested with the runner.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	if err == nil || fault.CodeOf(err) != code {
		t.Errorf("%v, want %s", err, code)
	}
}

// The runner's codes are the contract's, though it does not link the package that
// has them.
func TestCodes(t *testing.T) {
	t.Parallel()
	for _, c := range runnerproto.Codes() {
		if !fault.Code(c).Known() {
			t.Errorf("%s is no code", c)
		}
	}
}

func framed(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body //nolint:gosec // short
}

// peer answers connections one after the other, in a runner's place.
func peer(t *testing.T, serve ...func(net.Conn)) (address string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "rc") //nolint:usetesting // t.TempDir's names are too long for a socket
	must(t, err)
	path := filepath.Join(folder, "s")
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", path)
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, f := range serve {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				f(conn)
			})
		}
	})
	t.Cleanup(func() {
		must(t, l.Close())
		wg.Wait()
		must(t, os.RemoveAll(folder))
	})
	return "unix://" + path
}

// welcome takes a control connection in.
func welcome(conn net.Conn) bool {
	var o runnerproto.Opening
	return runnerproto.ReadFrame(conn, &o, runnerproto.MaxOpening) == nil &&
		runnerproto.WriteFrame(conn, runnerproto.Opened{Session: "s", World: &runnerproto.World{Home: "/h"}}, runnerproto.MaxOpening) == nil
}

// Where there is no runner, or none that is understood, it is not ready.
func TestDialFails(t *testing.T) {
	t.Parallel()
	say := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			var o runnerproto.Opening
			_ = runnerproto.ReadFrame(conn, &o, runnerproto.MaxOpening)
			_, _ = io.WriteString(conn, text)
		}
	}
	for name, address := range map[string]string{
		"no scheme":   "/run/runner.sock",
		"hangs up":    peer(t, say("")),
		"garbage":     peer(t, say("HTTP/1.1 400 Bad Request\r\n\r\n")),
		"large":       peer(t, say("\xff\xff\xff\xff")),
		"no session":  peer(t, say(framed("{}"))),
		"refuses":     peer(t, say(framed(`{"error":{"code":"made_up"}}`))),
		"says nought": peer(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }),
		"is none":     "unix://" + filepath.Join(t.TempDir(), "s"),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := runnerclient.Dial(ctx, address)
		cancel()
		if !fault.Is(err, fault.SandboxNotReady) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Dial waits for a runner that is still coming up.
func TestDialWaits(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "rc") //nolint:usetesting // t.TempDir's names are too long for a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(folder)) })
	dialled := make(chan error, 1)
	go func() {
		w, err := runnerclient.Dial(t.Context(), "unix://"+folder+"/late")
		if err == nil {
			err = w.Close()
		}
		dialled <- err
	}()
	select {
	case err := <-dialled:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	early := peer(t, func(conn net.Conn) { welcome(conn) })
	must(t, os.Rename(strings.TrimPrefix(early, "unix://"), folder+"/late"))
	must(t, <-dialled)
}

// An answer that nobody understands, or that belongs to nothing, ends the
// connection or is dropped; nobody waits for what does not come.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"garbage":      framed("nope!"),
		"large":        "\x7f\xff\xff\xff",
		"unknown":      framed(`{"id":1,"x":1}`),
		"hangs up":     "",
		"no result":    framed(`{"id":1}`),
		"another call": framed(`{"id":99}`) + framed("nope!"),
		"unknown code": framed(`{"id":1,"error":{"code":"unheard"}}`),
	} {
		address := peer(t, func(conn net.Conn) {
			var r runnerproto.Request
			if welcome(conn) && runnerproto.ReadFrame(conn, &r, runnerproto.MaxRequest) == nil {
				_, _ = io.WriteString(conn, answer)
			}
		})
		w, err := runnerclient.Dial(t.Context(), address)
		must(t, err)
		_, err = w.Limits(t.Context())
		want := fault.SandboxEvicted
		switch name {
		case "unknown code":
			want = fault.Internal
		case "no result":
			want = fault.SandboxNotReady
		}
		if !fault.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		<-w.Gone()
		wantCode(t, w.Reset(t.Context()), fault.SandboxEvicted)
		must(t, w.Close())
	}
}

// A call that nobody answers ends with its context, also before it begins, and
// Close does not wait for it.
func TestContexts(t *testing.T) {
	t.Parallel()
	silent := func(conn net.Conn) {
		if welcome(conn) {
			_, _ = io.Copy(io.Discard, conn)
		}
	}
	w, err := runnerclient.Dial(t.Context(), peer(t, silent, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }))
	must(t, err)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.Limits(done)
	wantCode(t, err, fault.Cancelled)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	wantCode(t, w.KillAll(short, 0), fault.DeadlineExceeded)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Freeze(t.Context()); !fault.Is(err, fault.SandboxEvicted) {
			t.Errorf("freeze: %v", err)
		}
	})
	wg.Go(func() {
		if _, err := w.Start(t.Context(), hosted.Command{Path: "sh"}); !fault.Is(err, fault.SandboxEvicted) {
			t.Errorf("start: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	<-ctx.Done() // so that both wait; nothing hangs on it
	must(t, w.Close())
	must(t, w.Close())
	wg.Wait()
}
