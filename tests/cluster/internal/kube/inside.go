package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Network is that of one pod, entered from outside: what is dialled from it, or listens in it, is as if a process of the
// pod did. Nothing of the pod's image takes part. The zero value is the machine's own, where the tests run.
type Network struct{ path string }

// Inside is the network of a running pod of this cluster.
func (c *Cluster) Inside(t testing.TB, pod *corev1.Pod) Network {
	t.Helper()
	return Network{"/proc/" + strconv.Itoa(c.Processes(t, pod)[0]) + "/ns/net"}
}

// Processes are the ids, as the tests see them, of the processes of a running pod, its infrastructure container's among
// them.
func (c *Cluster) Processes(t testing.TB, pod *corev1.Pod) []int {
	t.Helper()
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, path := range groups {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "/pod"+string(pod.UID)+"/") {
			continue // it is another's, or has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		t.Fatalf("pod %s/%s has no process on this machine", pod.Namespace, pod.Name)
	}
	return pids
}

// DialContext dials an IP address and port from this network, over tcp or udp. It is what net.Dialer's is, for an
// http.Transport too.
func (n Network) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if n.path == "" {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	there, err := n.enter()
	if err != nil {
		return nil, err
	}
	defer there.leave()
	// A socket belongs to the network that it was made in, so the thread comes back before it waits for an answer.
	dialer := &net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
		if !there.leave() {
			return errors.New("a second socket, which is not of that network")
		}
		return nil
	}}
	return dialer.DialContext(ctx, network, address)
}

// Listen accepts connections in this network for as long as the test runs, and says something to each; over udp it sends
// back what it gets.
func (n Network) Listen(t testing.TB, network, address string) {
	t.Helper()
	if n.path != "" {
		there, err := n.enter()
		if err != nil {
			t.Fatal(err)
		}
		defer there.leave()
	}
	if network == "udp" {
		conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go echo(conn)
		return
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go greet(listener)
}

// Address gives the machine, which has no way out, an address of the world for as long as the test runs. What then listens
// on it is as far from a pod as anything outside.
func Address(t testing.TB, address string) {
	t.Helper()
	change := func(ctx context.Context, what string) {
		if out, err := exec.CommandContext(ctx, "ip", "address", what, address+"/32", "dev", "lo").CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", address, err, out)
		}
	}
	change(t.Context(), "add")
	t.Cleanup(func() { change(context.WithoutCancel(t.Context()), "del") })
}

func echo(conn net.PacketConn) {
	buffer := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(buffer[:n], from) // who does not get it has not been answered
	}
}

func greet(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// visit is a thread of this process in another network.
type visit struct{ home, away int }

func (n Network) enter() (*visit, error) {
	away, err := unix.Open(n.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the network of a pod that has ended: %w", err)
	}
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		if err = unix.Setns(away, unix.CLONE_NEWNET); err == nil {
			return &visit{home, away}, nil
		}
		_ = unix.Close(home)
	}
	runtime.UnlockOSThread()
	return nil, errors.Join(err, unix.Close(away))
}

// leave brings the thread back, and says whether it was away. A thread that cannot come back stays locked, and ends with
// its goroutine.
func (v *visit) leave() bool {
	if v.away < 0 {
		return false
	}
	if unix.Setns(v.home, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	_, _ = unix.Close(v.home), unix.Close(v.away)
	v.away = -1
	return true
}
