package escape

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/isolation"
	"cofferdam.dev/tests/internal/forbidden"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
)

// dialTimeout bounds one look at an endpoint.
const dialTimeout = 30 * time.Second

// endpoints is where a program reaches the model in one run, and its tools where it
// takes them by MCP, and what with.
type endpoints struct {
	URL string `json:"url"`
	Key string `json:"key"`
	MCP string `json:"mcp"`
}

// door is one of the endpoints, by the name of the attack that asks there and of the
// address that it takes.
type door struct{ attack, address string }

var (
	modelDoor = door{"model", "url"}
	toolsDoor = door{"tools", "mcp"}
)

// The endpoints of a run answer in that run and not after it: not to what the program
// left behind, which is ended with it, not to anybody else in the same network, and not
// to the program of the next run with the key of this one. They never answer to another
// binding, or from outside. A program of lines has the model's alone, and nothing
// listens between two runs; an agent has that of its tools as well, and between two runs
// both listen and refuse.
func TestEndpointsAreForOneRun(t *testing.T) {
	needsPython(t)
	w := theStack(t)
	for agent, tc := range map[string]struct {
		doors []door
		// between is the answer between two runs, and stale that of the next run at the
		// address of this one.
		between, stale string
	}{
		program:      {[]door{modelDoor}, "ECONNREFUSED", "ECONNREFUSED"},
		agentProgram: {[]door{modelDoor, toolsDoor}, "403", "401"},
	} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			c := w.talk(agent)
			ghost := "/workspace/ghost"
			run := c.begin(t, encode(t, []attack{
				{"do": "keep_endpoint", "path": "/workspace/kept"},
				{"do": "haunt", "path": ghost},
				{"do": "wait_for", "path": ghost},
				{"do": "wait_for", "path": "/workspace/go"},
			}))
			worker := c.worker(t, run.BindingID)
			at := kept(t, worker)
			for _, d := range tc.doors {
				at.expect(t, "in the run", worker, d, "200")
				wrong := at
				wrong.Key += "x"
				wrong.expect(t, "with another key", worker, d, "401")
				at.expect(t, "from the host", procs.Process{PID: os.Getpid()}, d, "ECONNREFUSED")
			}
			w.ofAnother(t, at, agent, tc.doors)
			plant(t, worker, isolation.AgentID, "go", "")
			r := c.end(t, run)
			if r.last().Type != finished {
				t.Fatal(r)
			}

			w.leftAlone(t, c, r)
			for _, d := range tc.doors {
				at.expect(t, "between two runs", worker, d, tc.between)
			}
			notes, err := os.ReadFile(impostor.Inside(worker, "workspace", "ghost"))
			if err != nil || !strings.Contains(string(notes), " 200\n") {
				t.Errorf("what was left behind never got an answer, so that nothing is shown: %q, %v", notes, err)
			}

			for _, d := range tc.doors {
				again := c.attacks(t,
					attack{"do": d.attack, "path": "/workspace/kept", d.address: "kept", "key": "kept"},
					attack{"do": d.attack, "path": "/workspace/kept", d.address: "own", "key": "kept"},
					attack{"do": d.attack, d.address: "own", "key": "none"},
					attack{"do": d.attack})
				want := []outcome{{false, tc.stale}, {false, "401"}, {false, "401"}, {true, "200"}}
				if !slices.Equal(again, want) {
					t.Errorf("%s in the next run: %v, want %v", d.attack, again, want)
				}
			}
		})
	}
}

// ofAnother has the program of another binding, in a run of its own, use what it learnt
// of the endpoints of this one.
func (w *world) ofAnother(t *testing.T, at endpoints, agent string, doors []door) {
	t.Helper()
	var tries []attack
	for _, d := range doors {
		tries = append(tries,
			attack{"do": d.attack, d.address: at.address(d), "key": at.Key},
			attack{"do": d.attack, "key": at.Key},
			attack{"do": d.attack})
	}
	said := w.talk(agent).attacks(t, tries...)
	for i, d := range doors {
		// At that address there is nothing in another network, or the other's own.
		for n, want := range [][]outcome{{{false, "ECONNREFUSED"}, {false, "401"}}, {{false, "401"}}, {{true, "200"}}} {
			if got := said[3*i+n]; !slices.Contains(want, got) {
				t.Errorf("%s of another binding, attempt %d: %v, want one of %v", d.attack, n, got, want)
			}
		}
	}
}

// kept is what the program has written down of its endpoints.
func kept(t *testing.T, worker procs.Process) (at endpoints) {
	t.Helper()
	until(t, "the endpoints of the run", func(context.Context) (bool, error) {
		raw, err := os.ReadFile(impostor.Inside(worker, "workspace", "kept"))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return json.Unmarshal(raw, &at) == nil, err // else it is being written
	})
	return at
}

func (e endpoints) address(d door) string {
	if d == toolsDoor {
		return e.MCP
	}
	return e.URL
}

// expect asks from within the network of a process.
func (e endpoints) expect(t *testing.T, when string, in procs.Process, d door, want string) {
	t.Helper()
	got := ""
	status, err := e.ask(t, in, d)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		got = "ECONNREFUSED"
	case err != nil:
		got = err.Error()
	default:
		got = strconv.Itoa(status)
	}
	if got != want {
		t.Errorf("%s %s it answers %s, want %s", d.attack, when, got, want)
	}
}

// request is one that is answered where it is let in.
func (e endpoints) request(t *testing.T, d door) *http.Request {
	t.Helper()
	address, body := e.URL+"/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"hello"}]}`
	if d == toolsDoor {
		address, body = e.MCP, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+e.Key)
	return req
}

// ask sends a request from within the network of a process.
func (e endpoints) ask(t *testing.T, in procs.Process, d door) (status int, err error) {
	t.Helper()
	u, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	req := e.request(t, d)
	err = forbidden.Within(in.PID, func() error {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(req.Context(), "tcp", u.Host)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
			return err
		}
		if err := req.Write(conn); err != nil {
			return err
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), req)
		if err != nil {
			return err
		}
		status = res.StatusCode
		_, err = io.Copy(io.Discard, res.Body) // an answer that is not read to its end is the run's failure
		return errors.Join(err, res.Body.Close())
	})
	return status, err
}
