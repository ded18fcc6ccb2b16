package scripted

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// probeBound is how long one look outside may take.
	probeBound = 3 * time.Second
	// maxShown of what a probe could read is said, in bytes.
	maxShown = 512
)

// probeStep looks at something that a sandbox keeps out of reach, and says what
// came of it: "probe WHAT TARGET: ok …", or the reason why not.
type probeStep struct {
	kind
	// What: read, write, list, connect, environ, memory, ptrace, kill, pids or dns.
	What string `json:"what"`
	// Target is a path, a pid, NETWORK:ADDRESS (tcp, udp, unix; unix:@NAME is an
	// abstract socket), or a name.
	Target string `json:"target,omitempty"`
	// Server of a DNS query.
	Server string `json:"server,omitempty"`
}

func (*probeStep) hostile() {}

func (s *probeStep) check() error {
	if s.probe() == nil {
		return errors.New("what: one of the probes")
	}
	return nil
}

func (s *probeStep) probe() func(context.Context) (string, error) {
	switch s.What {
	case "read":
		return s.read
	case "write":
		return s.write
	case "list":
		return s.list
	case "connect":
		return s.connect
	case "environ":
		return s.environ
	case "memory":
		return s.memory
	case "ptrace":
		return s.ptrace
	case "kill":
		return s.kill
	case "pids":
		return s.pids
	case "dns":
		return s.dns
	default:
		return nil
	}
}

func (s *probeStep) play(ctx context.Context, a actor) error {
	bound, stop := context.WithTimeout(ctx, probeBound)
	defer stop()
	seen, err := s.probe()(bound)
	what := strings.TrimSpace("probe " + s.What + " " + s.Target)
	if err == nil && seen != "" {
		return a.say(ctx, what+": ok "+seen)
	}
	return a.report(ctx, what, err)
}

// reason is why something failed, as short as the kernel says it.
func reason(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
		return fmt.Sprintf("errno %d", int(errno))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	default:
		return "failed"
	}
}

func shown(content []byte) string {
	return fmt.Sprintf("%d bytes %q", len(content), content[:min(len(content), maxShown)])
}

func (s *probeStep) read(context.Context) (string, error) {
	return readSome(s.Target)
}

// readSome does not wait for what never ends, and never for a pipe.
func readSome(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, 64<<10)
	n, err := f.Read(content)
	if n > 0 {
		err = nil
	}
	return shown(content[:n]), err
}

func (s *probeStep) write(context.Context) (string, error) {
	f, err := os.OpenFile(s.Target, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString("probe\n")
	return "", errors.Join(err, f.Close())
}

func (s *probeStep) list(context.Context) (string, error) {
	entries, err := os.ReadDir(s.Target)
	if err != nil {
		return "", err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return shown([]byte(strings.Join(names, " "))), nil
}

func (s *probeStep) connect(ctx context.Context) (string, error) {
	network, address, _ := strings.Cut(s.Target, ":")
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(probeBound / 6)) // a listener that says nothing was reached all the same
	_, werr := conn.Write([]byte("probe\n"))
	greeting := make([]byte, maxShown)
	n, rerr := conn.Read(greeting)
	if network == "udp" && n == 0 { // nothing proves that anybody is there
		return "", errors.Join(werr, rerr)
	}
	// Whoever answers by closing the connection was reached.
	return "connected, " + shown(greeting[:n]), nil
}

func (s *probeStep) environ(context.Context) (string, error) {
	return readSome(filepath.Join("/proc", s.Target, "environ"))
}

// memory reads from the first mapping of a process.
func (s *probeStep) memory(context.Context) (string, error) {
	maps, err := os.ReadFile(filepath.Join("/proc", s.Target, "maps"))
	if err != nil {
		return "", err
	}
	first, _, _ := bytes.Cut(maps, []byte("-"))
	at, err := strconv.ParseInt(string(first), 16, 64)
	if err != nil {
		return "", syscall.EACCES // the mappings of somebody else's process are shown empty
	}
	f, err := os.Open(filepath.Join("/proc", s.Target, "mem"))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, 64)
	n, err := f.ReadAt(content, at)
	return shown(content[:n]), err
}

func (s *probeStep) ptrace(context.Context) (string, error) {
	pid, err := strconv.Atoi(s.Target)
	if err != nil {
		return "", err
	}
	goruntime.LockOSThread() // a tracer is a thread
	defer goruntime.UnlockOSThread()
	if err := unix.PtraceAttach(pid); err != nil {
		return "", err
	}
	_, err = syscall.Wait4(pid, nil, 0, nil)
	return "", errors.Join(err, unix.PtraceDetach(pid))
}

// kill asks whether a process could be signalled, and sends nothing.
func (s *probeStep) kill(context.Context) (string, error) {
	pid, err := strconv.Atoi(s.Target)
	if err != nil {
		return "", err
	}
	return "", syscall.Kill(pid, 0)
}

func (s *probeStep) pids(context.Context) (string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return "", err
	}
	var pids []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	slices.Sort(pids)
	return fmt.Sprintf("%d: %s", len(pids), strings.Join(pids[:min(len(pids), 64)], " ")), nil
}

// dns sends a query by hand: no file of the machine decides whom it asks.
func (s *probeStep) dns(ctx context.Context) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", s.Server)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	query := make([]byte, 12, 64)
	_, _ = rand.Read(query[:2]) // it never fails
	binary.BigEndian.PutUint16(query[2:], 0x0100)
	binary.BigEndian.PutUint16(query[4:], 1)
	for label := range strings.SplitSeq(strings.Trim(s.Target, "."), ".") {
		if len(label) == 0 || len(label) > 63 {
			return "", syscall.EINVAL
		}
		query = append(append(query, byte(len(label))), label...) //nolint:gosec // at most 63
	}
	query = append(query, 0, 0, 1, 0, 1)
	if err := conn.SetDeadline(time.Now().Add(probeBound)); err != nil {
		return "", err
	}
	if _, err := conn.Write(query); err != nil {
		return "", err
	}
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("answered with %d bytes", n), nil
}
