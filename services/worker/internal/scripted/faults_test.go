package scripted

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/waittest"
	"cofferdam.dev/services/worker/internal/session"
)

const hostile = `{"hostile":true}`

// A harness that breaks the rules has one clean end, and the worker goes on.
func TestFaults(t *testing.T) {
	t.Parallel()
	scripts := map[string]fault.Code{
		`[{"do":"garbage"}]`:                           fault.Protocol,
		`[{"do":"end"}]`:                               fault.Protocol,
		`[{"do":"panic"}]`:                             fault.Internal,
		`[{"do":"fail","code":"model_failed"}]`:        fault.ModelFailed,
		`[{"do":"flood","events":5000}]`:               fault.Protocol,
		`[{"do":"flood","events":5000,"bytes":65536}]`: fault.Protocol,
		`[{"do":"draft","draft":{"type":"text.started","data":{"message_id":"m","role":"assistant"}}}]`: fault.Protocol,
	}
	for _, what := range Illegal() {
		scripts[`[{"do":"illegal","what":"`+what+`"}]`] = fault.Protocol
	}
	s := newStand(t, "")
	n := 0
	for script, code := range scripts {
		n++
		got := s.run(t, fmt.Sprint("run-", n), script)
		if e, ok := got.end().(event.RunError); !ok || e.Code != string(code) {
			t.Errorf("%s ended by %#v", script, got.end())
		}
	}
	s.run(t, "run-after", `[{"do":"text","text":"still here"}]`).wantFinished(t)
}

func TestOverrun(t *testing.T) {
	t.Parallel()
	got := newStand(t, "").run(t, "run-1", `[{"do":"text","text":"x"},{"do":"overrun"}]`)
	got.wantFinished(t)
	if got.types() != "run.started text.started text.delta text.finished run.finished" {
		t.Errorf("events %s", got.types())
	}
}

// Nothing follows the terminal, whoever is left to say something.
func TestLate(t *testing.T) {
	t.Parallel()
	s := newStand(t, "")
	got := s.run(t, "run-1", `[{"do":"late"},{"do":"text","text":"x"}]`)
	got.wantFinished(t)
}

func TestIgnoreCancel(t *testing.T) {
	t.Parallel()
	s := newStand(t, "")
	r := s.start(t, "run-1", `[{"do":"text","text":"x"},{"do":"ignore_cancel","ms":200}]`)
	batch, err := r.Next(t.Context())
	must(t, err)
	began := time.Now()
	s.Cancel(t.Context(), "run-1", event.CancelledByClient)
	if got := append(events(batch), rest(t, r)...); got.end() != (event.RunCancelled{Reason: event.CancelledByClient, SideEffectStatus: event.SideEffectsNone}) {
		t.Errorf("ended by %#v", got.end())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
}

// rest reads what is left of a run.
func rest(t *testing.T, r *session.Run) events {
	t.Helper()
	var out events
	for {
		batch, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		out = append(out, batch...)
	}
}

// A harness that hangs is said to hang, and goes with the worker.
func TestHang(t *testing.T) {
	t.Parallel()
	s := newStand(t, hostile)
	r := s.start(t, "run-1", `[{"do":"text","text":"x"},{"do":"hang"}]`)
	_, err := r.Next(t.Context())
	must(t, err)
	waittest.Until(t, "it hangs", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:goruntime.Stack(stacks, true)], []byte("(*hangStep).play"))
	})
	s.Cancel(t.Context(), "run-1", event.CancelledByClient)
	if s.Cancel(t.Context(), "run-1", event.CancelledByClient).Stopped {
		t.Error("it says that the harness has stopped")
	}
	if err := s.Shutdown(t.Context()); fault.CodeOf(err) != fault.DeadlineExceeded && err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// What uses up a sandbox says how far it got, and cleans up after itself.
func TestHogs(t *testing.T) {
	t.Parallel()
	s := newStand(t, hostile)
	folder := t.TempDir()
	for n, c := range []struct{ script, says string }{
		{`[{"do":"memory_hog","bytes":8388608}]`, "held 8388608 bytes: ok"},
		{`[{"do":"goroutines","count":50}]`, "ran 50 goroutines: ok"},
		{`[{"do":"goroutines","count":5,"threads":true}]`, "ran 5 goroutines: ok"},
		{`[{"do":"spin","ms":5,"threads":2}]`, "spun: ok"},
		{`[{"do":"disk","folder":"` + folder + `","bytes":3000000}]`, "wrote 3000000 bytes: ok"},
		{`[{"do":"disk","folder":"/no/such/folder","bytes":1}]`, "wrote 0 bytes: ENOENT"},
	} {
		got := s.run(t, fmt.Sprint("run-", n), c.script)
		got.wantFinished(t)
		if got.text() != c.says {
			t.Errorf("%s says %q", c.script, got.text())
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// What ends the worker, or makes processes, has a process of its own here.
func TestEndings(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	for script, want := range map[string]string{
		`[{"do":"exit","code":7}]`:               "exit status 7",
		`[{"do":"crash"}]`:                       "signal: killed",
		`[{"do":"fork","count":3,"ms":1}]`:       "<nil>",
		`[{"do":"orphans","count":40}]`:          "<nil>",
		`[{"do":"text","text":"no end at all"}]`: "<nil>",
	} {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), endingEnv+"="+script)
		cmd.Stderr = io.Discard
		if err := cmd.Run(); fmt.Sprint(err) != want {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// A forked process is one, and does nothing but sleep.
func TestFork(t *testing.T) {
	t.Parallel()
	pid, err := fork(time.Minute, false)
	must(t, err)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("no process was made: %v", err)
	}
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v, %v", status, err)
	}
}

// Without walls every probe finds what it looks for; that is what makes its
// silence behind them mean something.
func TestProbes(t *testing.T) {
	t.Parallel()
	const canary = "canary-4711"
	folder := t.TempDir()
	file := filepath.Join(folder, "secret.txt")
	must(t, os.WriteFile(file, []byte(canary), 0o600))
	victim := exec.CommandContext(t.Context(), "sleep", "60")
	victim.Env = []string{"CANARY=" + canary}
	must(t, victim.Start())
	t.Cleanup(func() {
		_ = victim.Process.Kill()
		_ = victim.Wait()
	})
	pid := strconv.Itoa(victim.Process.Pid)
	tcp := listen(t, "tcp", "127.0.0.1:0")
	unixPath := filepath.Join(folder, "s.sock")
	listen(t, "unix", unixPath)
	listen(t, "unix", "@cofferdam-scripted-test-"+pid)
	server := nameServer(t)

	s := newStand(t, hostile)
	for n, c := range []struct{ probe, says string }{
		{`"read","target":"` + file + `"`, ": ok 11 bytes \"" + canary + "\""},
		{`"read","target":"/no/such/file"`, ": ENOENT"},
		{`"read","target":"` + folder + `"`, ": EISDIR"},
		{`"write","target":"` + filepath.Join(folder, "new.txt") + `"`, ": ok"},
		{`"write","target":"/proc/version"`, ": E"},
		{`"list","target":"` + folder + `"`, "secret.txt"},
		{`"environ","target":"` + pid + `"`, canary},
		{`"memory","target":"` + pid + `"`, ": ok 64 bytes"},
		{`"ptrace","target":"` + pid + `"`, ": ok"},
		{`"kill","target":"` + pid + `"`, ": ok"},
		{`"kill","target":"999999999"`, ": ESRCH"},
		{`"pids"`, ": ok "},
		{`"connect","target":"tcp:` + tcp + `"`, ": ok connected, "},
		{`"connect","target":"unix:` + unixPath + `"`, ": ok connected, "},
		{`"connect","target":"unix:@cofferdam-scripted-test-` + pid + `"`, ": ok connected, "},
		{`"connect","target":"tcp:127.0.0.1:1"`, ": ECONNREFUSED"},
		{`"connect","target":"unix:/no/such/socket"`, ": ENOENT"},
		{`"dns","target":"example.com","server":"` + server + `"`, ": ok answered with"},
	} {
		got := s.run(t, fmt.Sprint("run-", n), `[{"do":"probe","what":`+c.probe+`}]`)
		got.wantFinished(t)
		if !strings.Contains(got.text(), c.says) {
			t.Errorf("%s says %q, not %q", c.probe, got.text(), c.says)
		}
	}
}

// listen greets whoever comes.
func listen(t *testing.T, network, address string) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), network, address)
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello"))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr().String()
}

// nameServer answers every query with itself.
func nameServer(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	c, err := lc.ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buffer := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buffer[:n], from)
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-ended
	})
	return c.LocalAddr().String()
}
