package escape

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/tests/internal/procs"
)

// endpoint is where a program reaches the model in one run, and what with.
type endpoint struct {
	URL string `json:"url"`
	Key string `json:"key"`
}

// The endpoint of a run answers in that run and not after it: not to what the
// program left behind, which is ended with it, not to anybody else in the same
// network, and not to the program of the next run with the key of this one.
func TestAnEndpointIsForOneRun(t *testing.T) {
	needsPython(t)
	w := theStack(t)
	c := w.talk(program)
	kept, ghost := attack{"do": "keep_endpoint", "path": "/workspace/kept"}, "/workspace/ghost"
	run := c.begin(t, encode(t, []attack{
		kept, {"do": "model"}, {"do": "haunt", "path": ghost}, {"do": "wait_for", "path": ghost}, {"do": "wait_for", "path": "/workspace/go"},
	}))
	worker := c.worker(t, run.BindingID)
	var at endpoint
	until(t, "the endpoint of the run", func(context.Context) (bool, error) {
		raw, err := os.ReadFile(insideOf(worker, "workspace", "kept"))
		if err != nil {
			return false, err
		}
		return json.Unmarshal(raw, &at) == nil, nil // else it is being written
	})
	if status, err := at.ask(t, worker); status != http.StatusOK {
		t.Errorf("in the run it answers %d, %v, so that silence means nothing", status, err)
	}
	if status, err := (endpoint{at.URL, at.Key + "x"}).ask(t, worker); status != http.StatusUnauthorized {
		t.Errorf("with another key it answers %d, %v", status, err)
	}
	plant(t, worker, isolation.AgentID, "go", "")
	r := c.end(t, run)
	if r.last().Type != finished {
		t.Fatal(r)
	}

	w.leftAlone(t, c, r)
	if status, err := at.ask(t, worker); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("between two runs it answers %d, %v", status, err)
	}
	notes, err := os.ReadFile(insideOf(worker, "workspace", "ghost"))
	if err != nil || !strings.Contains(string(notes), " 200\n") {
		t.Errorf("what was left behind never got an answer, so that nothing is shown: %q, %v", notes, err)
	}

	again := c.attacks(t,
		attack{"do": "model", "path": "/workspace/kept", "url": "kept", "key": "kept"},
		attack{"do": "model", "path": "/workspace/kept", "url": "own", "key": "kept"},
		attack{"do": "model", "url": "own", "key": "none"},
		attack{"do": "model"})
	want := []outcome{{false, "ECONNREFUSED"}, {false, "401"}, {false, "401"}, {true, "200"}}
	if !slices.Equal(again, want) {
		t.Errorf("in the next run: %v, want %v", again, want)
	}
}

// ask sends a request from within the network of a sandbox.
func (e endpoint) ask(t *testing.T, worker procs.Process) (status int, err error) {
	t.Helper()
	u, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", worker.PID))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = network.Close() }()
	body := `{"model":"demo","messages":[{"role":"user","content":"hello"}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+e.Key)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if _, _, errno := syscall.RawSyscall(sysSetns, network.Fd(), syscall.CLONE_NEWNET, 0); errno != 0 {
			err = errno
			return
		}
		var conn net.Conn
		if conn, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(req.Context(), "tcp", u.Host); err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		if err = conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
			return
		}
		if err = req.Write(conn); err != nil {
			return
		}
		var res *http.Response
		if res, err = http.ReadResponse(bufio.NewReader(conn), req); err == nil {
			status, err = res.StatusCode, res.Body.Close()
		}
	}()
	<-done
	return status, err
}
