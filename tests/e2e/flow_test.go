package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/stack"
)

const (
	// manyWords are as many events, whose log is more than the sockets of a reader
	// hold, and tooMany are more than the 8 MiB beyond that which the request that
	// started a run may fall behind. Their text is short enough for a thread state.
	manyWords = 20_000
	tooMany   = 90_000
	// mostMemory bounds the control plane while readers do not read, in bytes.
	mostMemory = 256 << 20
)

func flood(words int) string { return fmt.Sprintf(">>repeat %d w", words) }

// stalled opens a request of the public API, reads until the answer has begun,
// and then leaves it unread.
func (w *world) stalled(t *testing.T, method, path, body string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(w.API, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
	}
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: cofferdam\r\nAuthorization: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, w.user.Authorization(), len(body), body)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, first); err != nil || string(first) != "HTTP/1.1 200" {
		t.Fatalf("answered %q, %v", first, err)
	}
	return conn
}

// A reader that does not read keeps nobody else from reading and makes nothing
// grow: it could read the log at its own pace.
func TestAReaderThatStallsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	run := c.begin(t, flood(manyWords))
	for range 4 {
		w.stalled(t, http.MethodGet, "/api/v1/runs/"+run.RunID+"/stream", "")
	}
	r := c.end(t, run)
	r.finished(t)
	if n := len(r.of("text.delta")); n != manyWords {
		t.Errorf("%d words", n)
	}
	w.checkMemory(t)
}

// The client that started a run and streams it is the one that it is for: where
// it does not read, nobody does, and the run is cancelled.
func TestARunWhoseAGUIClientStallsIsCancelled(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	w.stalled(t, http.MethodPost, "/api/v1/agents/"+stack.Agent+"/agui", fmt.Sprintf(
		`{"threadId":"%s","runId":"r-1","messages":[{"id":"m-1","role":"user","content":"%s"}]}`, c.conversation, flood(tooMany)+`\n>>sleep 60000`))
	id := w.runOf(t, c.conversation)
	var status apiclient.Run
	wait, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	err := stack.Until(wait, func() (_ bool, err error) {
		status, err = w.user.Run(wait, id)
		return status.State == "ended", err
	})
	if err != nil {
		t.Fatalf("%v: %+v", err, status)
	}
	if status.End != "cancelling" || status.EndReason != "disconnect" || status.Terminal == nil || status.Terminal.Type != "run.cancelled" {
		t.Errorf("ended as %+v", status)
	}
	if status.Events >= tooMany {
		t.Errorf("it was let go on until it had said everything: %d events", status.Events)
	}
	t.Logf("cancelled after %v and %d events", status.EndedAt.Sub(status.StartedAt), status.Events)
	w.checkMemory(t)
}

// runOf waits until a conversation has a run and gives its id.
func (w *world) runOf(t *testing.T, conversation string) (id string) {
	t.Helper()
	until(t, "a run of "+conversation, func(ctx context.Context) (_ bool, err error) {
		id, err = w.findRun(ctx, conversation)
		return id != "", err
	})
	return id
}

// checkMemory looks at the most that the control plane ever had in memory.
func (w *world) checkMemory(t *testing.T) {
	t.Helper()
	p, err := w.Program("controlplane")
	if err != nil {
		t.Fatal(err)
	}
	most, err := peak(p)
	if err != nil || most == 0 || most > mostMemory {
		t.Errorf("the control plane had %d MiB in memory (%v)", most>>20, err)
	}
	t.Logf("the control plane had at most %d MiB in memory", most>>20)
}

func peak(p procs.Process) (bytes int64, err error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s: no VmHWM", p)
}
