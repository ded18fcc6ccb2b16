package npmpeers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// patience is how long a Node program may take until it serves, on a machine that
// has much else to do.
const patience = time.Minute

// Serve serves a reference server over streamable HTTP until the end of the test,
// and gives its URL. env is the whole environment of the server. "everything" does
// it by itself; for the others, which know only stdio, a script stands in between.
func (p Peers) Serve(tb testing.TB, env []string, name string, args ...string) string {
	tb.Helper()
	if name == "everything" {
		return p.serveEverything(tb, env)
	}
	out := p.start(tb, env, append([]string{p.Node(), p.Script("overhttp.mjs")}, p.Server(name, args...)...))
	line := make(chan string, 1)
	go func() {
		first, _ := bufio.NewReader(out).ReadString('\n') // empty where it ended
		line <- strings.TrimSpace(first)
		_, _ = io.Copy(io.Discard, out)
	}()
	select {
	case u := <-line:
		if u != "" {
			return u
		}
		tb.Fatalf("%s over HTTP ended", name)
	case <-time.After(patience):
		tb.Fatalf("%s over HTTP says nothing", name)
	}
	return ""
}

// serveEverything waits until the server answers: it is told its port and does not
// say when it listens.
func (p Peers) serveEverything(tb testing.TB, env []string) string {
	tb.Helper()
	free, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	at := free.Addr().String()
	_, port, err := net.SplitHostPort(at)
	if err != nil || free.Close() != nil {
		tb.Fatal(err)
	}
	out := p.start(tb, append(env, "PORT="+port), p.Server("everything", "streamableHttp"))
	go func() { _, _ = io.Copy(io.Discard, out) }()
	u := "http://" + at + "/mcp"
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, u, nil)
		if err != nil {
			tb.Fatal(err)
		}
		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close() // it refuses, which is an answer
			return u
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // another process's doing
	}
	tb.Fatal("server-everything does not listen")
	return ""
}

// start starts a program until the end of the test, and gives its stdout.
func (p Peers) start(tb testing.TB, env, command []string) io.Reader {
	tb.Helper()
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // a test's; it is killed at its end
	cmd.Env = append([]string{}, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(fmt.Errorf("%s: %w", command, err))
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return out
}
