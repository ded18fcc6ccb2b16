package stack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/process"
)

func TestPartsStartInOrderAndStopInReverse(t *testing.T) {
	b := newBench(t)
	b.mode(t, controlPlane, "warn")
	err := b.run(t, func(ctx context.Context, s *Stack) error {
		info := s.Info()
		if !info.Ready || info.API == info.Operator || !slices.Equal(info.Agents, []string{DemoAgent}) {
			t.Errorf("info %+v", info)
		}
		servedBy(ctx, t, info.API)
		servedBy(ctx, t, info.Operator)
		running, err := s.Dir().ReadRunning()
		if err != nil || running.API != info.API || running.Operator != info.Operator || running.PID != os.Getpid() {
			t.Errorf("running %+v, %v", running, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	order := services()
	if got := names(b.diary(t), "start"); !slices.Equal(got, order) {
		t.Errorf("started %v, want %v", got, order)
	}
	slices.Reverse(order)
	if got := names(b.diary(t), "stop"); !slices.Equal(got, order) {
		t.Errorf("stopped %v, want %v", got, order)
	}
	if got := names(b.diary(t), "environment"); len(got) > 0 {
		t.Errorf("%v inherited an environment", got)
	}
	if _, err := os.Stat(filepath.Join(b.data, "run", "up.json")); err == nil {
		t.Error("it still says that it runs")
	}
	said := b.progress.String()
	for _, name := range append([]string{openFGA}, services()...) {
		if !strings.Contains(said, "starting "+name+" ... ready in ") {
			t.Errorf("nothing is said of %s: %s", name, said)
		}
	}
	if !strings.Contains(said, "controlplane: weak; missing: seccomp\n") {
		t.Errorf("the warning of a part is not passed on: %s", said)
	}
	if strings.Contains(said, "readiness") {
		t.Errorf("what is over is passed on: %s", said)
	}
}

// Sandboxes have no network: what they may call has a socket besides, which is the
// same process as the address, also after it was killed. The users of sandboxes may
// connect to it, and only this one can get there.
func TestServicesHaveASocketForSandboxes(t *testing.T) {
	b := newBench(t)
	var folder string
	err := b.run(t, func(ctx context.Context, s *Stack) error {
		folder = s.sockets.services()
		if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", folder, info, err)
		}
		for _, name := range serveSandboxes() {
			path := s.listeners[name][sandboxListener].addr
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 || path != filepath.Join(folder, name+".sock") {
				t.Errorf("%s: %v, %v", path, info, err)
			}
		}
		at := func() (tcp, socket int) {
			return servedBy(ctx, t, s.listeners[modelProxy][adminListener].http()), socketServedBy(ctx, t, s.listeners[modelProxy][sandboxListener].addr)
		}
		tcp, socket := at()
		if tcp != socket {
			t.Errorf("process %d serves the address, and process %d the socket", tcp, socket)
		}
		if err := s.Kill(ctx, ModelProxy); err != nil {
			return err
		}
		if after, socket := at(); after != socket || after == tcp {
			t.Errorf("after a kill process %d serves the address, and process %d the socket", after, socket)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the sockets are left: %v", err)
	}
}

func TestARefusalIsShownAtOnce(t *testing.T) {
	b := newBench(t)
	b.mode(t, controlPlane, "refuse")
	begun := time.Now()
	err := b.run(t, func(context.Context, *Stack) error {
		t.Error("it came up")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "controlplane did not start: service failed: layers are missing: seccomp") ||
		!strings.Contains(err.Error(), filepath.Join(b.data, "logs", "controlplane.log")) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begun); took > readyTimeout/4 {
		t.Errorf("after %v", took)
	}
	if left := alive(b.diary(t)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAKilledPartComesBackOnItsPort(t *testing.T) {
	b := newBench(t)
	err := b.run(t, func(ctx context.Context, s *Stack) error {
		url := s.listeners[modelProxy][adminListener].http()
		first := servedBy(ctx, t, url)
		if err := s.Kill(ctx, ModelProxy); err != nil {
			return err
		}
		if second := servedBy(ctx, t, url); second == first {
			t.Errorf("process %d answers after it was killed", first)
		}
		if err := s.Kill(ctx, "nobody"); err == nil {
			t.Error("a part that is not there was killed")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if said := b.progress.String(); !strings.Contains(said, "modelproxy ended (process: ended by signal 9 (killed)): starting it again in ") {
		t.Errorf("nothing is said of it: %s", said)
	}
}

func TestAStubbornPartDoesNotHoldTheEndUp(t *testing.T) {
	b := newBench(t)
	for _, name := range services() {
		b.mode(t, name, "stubborn")
	}
	var begun time.Time
	err := b.run(t, func(context.Context, *Stack) error {
		begun = time.Now()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("it took %v to end", took)
	}
	if left := alive(b.diary(t)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheErrorOfTheBodyIsGiven(t *testing.T) {
	b := newBench(t)
	want := errors.New("no good")
	if err := b.run(t, func(context.Context, *Stack) error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestWhatCannotBeStartedAgainEndsTheStack(t *testing.T) {
	b := newBench(t)
	want := errors.New("no rotation")
	err := b.run(t, func(ctx context.Context, s *Stack) error {
		s.background(ctx, "the test", func(context.Context) error { return want })
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestAnInterruptedStartLeavesNothing(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The first part that says something interrupts.
	out := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "starting "+toolBroker) {
			cancel()
		}
		return len(p), nil
	})
	err := Run(ctx, Config{BinDir: b.bin, DataDir: b.data, Listen: anyPort, Progress: out}, func(context.Context, *Stack) error {
		t.Error("it came up")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := alive(b.diary(t)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Several replicas have a host for their sandboxes, and each an address of its own.
func TestReplicas(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg := Config{BinDir: b.bin, DataDir: b.data, Listen: anyPort, Replicas: 3, TakeOverAfter: 5 * time.Second}
	err := Run(ctx, cfg, func(ctx context.Context, s *Stack) error {
		info := s.Info()
		if len(info.Replicas) != 3 || info.Replicas[0] != info.API {
			t.Errorf("info = %+v", info)
		}
		pids := map[int]bool{}
		for _, api := range info.Replicas {
			pids[servedBy(ctx, t, api)] = true
		}
		if len(pids) != 3 {
			t.Errorf("%v answer for three replicas", pids)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	started := names(b.diary(t), "start")
	if n := len(started); n < 4 || !slices.Equal(started[n-4:], []string{sandboxHost, controlPlane, controlPlane, controlPlane}) {
		t.Errorf("started in the order %v", started)
	}
	if left := alive(b.diary(t)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, n := range []int{-1, 9} {
		if err := Run(ctx, Config{BinDir: b.bin, DataDir: b.data, Listen: anyPort, Replicas: n}, nil); err == nil || !strings.Contains(err.Error(), "--replicas") {
			t.Errorf("%d replicas: %v", n, err)
		}
	}
}

func TestAFolderAndAPortHaveOneStack(t *testing.T) {
	b := newBench(t)
	err := b.run(t, func(ctx context.Context, s *Stack) error {
		never := func(context.Context, *Stack) error { t.Error("a second one came up"); return nil }
		same := Config{BinDir: b.bin, DataDir: b.data, Listen: anyPort}
		if err := Run(ctx, same, never); err == nil || !strings.Contains(err.Error(), "in use by process") {
			t.Errorf("the same folder: %v", err)
		}
		taken := strings.TrimPrefix(s.Info().API, "http://")
		other := Config{BinDir: b.bin, DataDir: filepath.Join(t.TempDir(), "other"), Listen: taken}
		if err := Run(ctx, other, never); err == nil || !strings.Contains(err.Error(), "--listen") {
			t.Errorf("the same port: %v", err)
		}
		if _, err := s.Dir().ReadRunning(); err != nil {
			t.Errorf("the first one was disturbed: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAStackThatIsKilledLeavesNoProcess(t *testing.T) {
	b := newBench(t)
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	up, err := process.Start(t.Context(), process.Spec{
		Path: filepath.Join(b.bin, upHelper), Args: []string{b.bin, b.data}, Stdout: childOut, Stderr: os.Stderr,
	})
	if err = errors.Join(err, childOut.Close()); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q, %v", line, err)
	}
	started := b.diary(t)
	if got := alive(started); len(got) != len(services()) {
		t.Fatalf("%d parts are alive", len(got))
	}
	if err := up.Stop(0); err != nil { // SIGKILL
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for left := alive(started); len(left) > 0; left = alive(started) {
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", left)
		}
		<-time.After(5 * time.Millisecond)
	}
	// What it left in the folder is no obstacle.
	if err := b.run(t, func(context.Context, *Stack) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestKeysAndIdsStayFromStartToStart(t *testing.T) {
	b := newBench(t)
	var seen []string
	for range 2 {
		err := b.run(t, func(_ context.Context, s *Stack) error {
			var all strings.Builder
			for _, path := range []string{s.dir.BindingKey(), s.dir.OpenFGAKey(), s.dir.IssuerKey(), s.dir.OpenFGAIDs(), filepath.Join(s.dir.Sample(), NotesFile)} {
				mode := os.FileMode(0o600)
				if filepath.Dir(path) == s.dir.Sample() { // in a closed folder, and shown to a server of another user
					mode = 0o644
				}
				info, err := os.Stat(path)
				if err != nil || info.Mode().Perm() != mode {
					t.Errorf("%s: %v, %v", path, info, err)
				}
				content, err := os.ReadFile(path)
				if err != nil {
					t.Error(err)
				}
				all.Write(content)
			}
			seen = append(seen, all.String())
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen[0] != seen[1] {
		t.Error("something changed")
	}
}

func TestSecretsStandInNoArgument(t *testing.T) {
	b := newBench(t)
	err := b.run(t, func(_ context.Context, s *Stack) error {
		for _, path := range []string{s.dir.BindingKey(), s.dir.OpenFGAKey(), s.dir.IssuerKey()} {
			secret, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range s.children {
				if strings.Contains(strings.Join(c.args, " "), strings.TrimSpace(string(secret))) {
					t.Errorf("%s is among the arguments of %s", path, c.name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheOneLineOfUp(t *testing.T) {
	raw, err := json.Marshal(Info{Ready: true, API: "http://127.0.0.1:1", Operator: "http://127.0.0.1:2", Agents: []string{"demo"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"ready":true,"api":"http://127.0.0.1:1","operator":"http://127.0.0.1:2","agents":["demo"]}`; string(raw) != want {
		t.Errorf("%s", raw)
	}
}
