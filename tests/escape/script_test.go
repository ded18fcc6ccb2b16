package escape

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/impostor"
)

// step is one step of a script.
type step map[string]any

// plays lets a conversation play steps; see the worker's scripted adapter.
func plays(t *testing.T, steps ...step) string { return encode(t, steps) }

// A worker that was wholly taken over reaches nothing either, but for the sockets
// that it was given.
func TestAWorkerReachesNothing(t *testing.T) {
	w := theStack(t)
	v := w.victim(t)
	c := w.talk(script)
	c.tell(t, plays(t, step{"do": "text", "text": "here"}))
	probes := slices.Concat(w.probesOfFiles(t, v), w.probesOfProcesses(v), w.probesOfNetwork(t))

	before := w.arrivals(t)
	var steps []step
	for _, p := range probes {
		steps = append(steps, p.step)
	}
	var said []string
	w.besides(t, func() { said = strings.Split(strings.TrimSpace(c.tell(t, plays(t, steps...))), "\n") })
	w.nobodyCame(t, before)
	if len(said) != len(probes) {
		t.Fatalf("%d answers to %d probes: %q", len(said), len(probes), said)
	}
	for i, p := range probes {
		if _, came, _ := strings.Cut(said[i], ": "); !slices.Contains(p.refused, came) {
			t.Errorf("%q; want one of %v", said[i], p.refused)
		}
	}
}

// probe is a step, and how what it tries has to be refused.
type probe struct {
	step    step
	refused []string
}

func probing(what, target string, refused ...string) probe {
	return probe{step{"do": "probe", "what": what, "target": target}, refused}
}

func (w *world) probesOfFiles(t *testing.T, v *victim) []probe {
	t.Helper()
	b, err := w.operator.Binding(t.Context(), v.run.BindingID)
	if err != nil || b.Sandbox == nil {
		t.Fatalf("%+v, %v", b, err)
	}
	return []probe{
		probing("connect", "unix:"+impostor.SocketOf(w.Data, b.Sandbox.InstanceUID), "ENOENT"), // where the victim's worker listens
		probing("read", v.root("workspace", "canary"), "ENOENT"),
		probing("list", v.root(), "ENOENT"),
		probing("read", filepath.Join(w.folder, "agents.json"), "ENOENT"),
		probing("list", w.Data, "ENOENT"),
		probing("list", filepath.Join(w.Data, "keys"), "ENOENT"),
		probing("list", filepath.Join(w.Data, "state"), "ENOENT"),
		probing("read", "/etc/shadow", "ENOENT"),
		probing("list", "/sys", "ENOENT"),
		probing("list", "/", "EACCES"),
		probing("list", "/cofferdam", "EACCES"),
		probing("read", "/dev/kmsg", "ENOENT"),
		probing("write", "/cofferdam/worker", "EACCES", "EROFS", "ETXTBSY"),
		probing("write", "/run/cofferdam/x", "EACCES", "EROFS"),
		probing("write", "/x", "EACCES", "EROFS"),
		probing("write", "/tmp/x", "ENOENT"),
		probing("write", "/dev/x", "EACCES", "EROFS"),
		probing("write", "/proc/sys/kernel/core_pattern", "EACCES", "EROFS"),
		probing("write", "/proc/self/uid_map", "EACCES", "EPERM"),
		probing("write", "/workspace/probe", "ok"), // it is its own: the probe works
	}
}

func (w *world) probesOfProcesses(v *victim) []probe {
	pid := fmt.Sprint(v.worker.PID)
	return []probe{
		probing("environ", pid, "ENOENT"),
		probing("memory", pid, "ENOENT"),
		probing("ptrace", pid, "EPERM"),
		probing("kill", pid, "ESRCH"),
		probing("pids", "", "ok 1: 1"),
		probing("environ", "1", "EACCES"), // its own: it keeps even itself from looking
	}
}

func (w *world) probesOfNetwork(t *testing.T) []probe {
	t.Helper()
	var probes []probe
	for _, f := range w.forbidden {
		switch {
		case f.Network == "udp":
			p := step{"do": "probe", "what": "dns", "target": "secret.example.com", "server": f.Address}
			probes = append(probes, probe{p, []string{"ENETUNREACH", "ECONNREFUSED"}})
		case strings.HasPrefix(f.Address, "/"):
			probes = append(probes, probing("connect", f.Network+":"+f.Address, "ENOENT"))
		default:
			probes = append(probes, probing("connect", f.Network+":"+f.Address, "ENETUNREACH", "ECONNREFUSED"))
		}
	}
	for _, address := range w.listeners(t) {
		probes = append(probes, probing("connect", "tcp:"+address.String(), "ECONNREFUSED"))
	}
	return probes
}
