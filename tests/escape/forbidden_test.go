package escape

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dialTimeout bounds one look at a listener.
const dialTimeout = 30 * time.Second

// forbidden is something that listens where a sandbox must not get, answers, and
// counts who came.
type forbidden struct {
	what, network, address string
	reached                atomic.Int64
	close                  func()
}

// places are where the forbidden things of a network are.
func places() []*forbidden {
	return []*forbidden{
		{what: "a program on the host's loopback", network: "tcp", address: "127.0.0.1:8999"},
		{what: "another address of the host's loopback", network: "tcp", address: "127.9.8.7:8080"},
		{what: "the metadata service", network: "tcp", address: "169.254.169.254:80"},
		{what: "the metadata service of containers", network: "tcp", address: "169.254.170.2:80"},
		{what: "the Kubernetes API", network: "tcp", address: "10.96.0.1:443"},
		{what: "a kubelet", network: "tcp", address: "10.0.0.7:10250"},
		{what: "MongoDB", network: "tcp", address: "127.0.0.1:27017"},
		{what: "PostgreSQL", network: "tcp", address: "10.0.0.7:5432"},
		{what: "a container engine", network: "tcp", address: "172.17.0.1:2375"},
		{what: "the resolver of the host", network: "udp", address: "127.0.0.53:53"},
		{what: "the cluster's DNS", network: "udp", address: "10.96.0.10:53"},
		{what: "DNS outside", network: "udp", address: "8.8.8.8:53"},
		{what: "DNS outside over TCP", network: "tcp", address: "8.8.8.8:53"},
		{what: "DNS outside over TLS", network: "tcp", address: "1.1.1.1:853"},
		{what: "DNS outside over HTTPS", network: "tcp", address: "1.1.1.1:443"},
		{what: "a host outside", network: "tcp", address: "93.184.215.14:443"},
	}
}

// addresses are those of the places that no loopback has by itself.
func addresses() []netip.Addr {
	var all []netip.Addr
	for _, f := range places() {
		if a := netip.MustParseAddrPort(f.address).Addr(); !a.IsLoopback() && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// listenAll opens everything that is forbidden: the places of the network, a socket
// of a container engine in the folder, and an abstract socket.
func listenAll(ctx context.Context, folder string) (all []*forbidden, err error) {
	all = append(places(),
		&forbidden{what: "the socket of a container engine", network: "unix", address: filepath.Join(folder, "engine.sock")},
		&forbidden{what: "an abstract socket of the host", network: "unix", address: fmt.Sprintf("@cofferdam-escape-%d", os.Getpid())})
	defer func() {
		if err != nil {
			closeAll(all)
		}
	}()
	for _, f := range all {
		if err := f.listen(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", f.what, err)
		}
	}
	return all, os.Chmod(filepath.Join(folder, "engine.sock"), 0o666)
}

func closeAll(all []*forbidden) {
	for _, f := range all {
		if f.close != nil {
			f.close()
		}
	}
}

// welcome is what every forbidden thing answers.
const welcome = "forbidden, and reached"

func (f *forbidden) listen(ctx context.Context) error {
	if f.network == "udp" {
		return f.listenPackets(ctx)
	}
	l, err := new(net.ListenConfig).Listen(ctx, f.network, f.address)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.reached.Add(1)
			_, _ = c.Write([]byte(welcome)) // whoever came may have gone
			_ = c.Close()
		}
	})
	f.close = func() {
		_ = l.Close() // which ends Accept
		serving.Wait()
	}
	return nil
}

func (f *forbidden) listenPackets(ctx context.Context) error {
	c, err := new(net.ListenConfig).ListenPacket(ctx, f.network, f.address)
	if err != nil {
		return err
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		query := make([]byte, 512)
		for {
			_, from, err := c.ReadFrom(query)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			f.reached.Add(1)
			_, _ = c.WriteTo([]byte(welcome), from) // whoever came may have gone
		}
	})
	f.close = func() {
		_ = c.Close() // which ends ReadFrom
		serving.Wait()
	}
	return nil
}

// dial reaches it from outside of every sandbox.
func (f *forbidden) dial(t *testing.T) {
	t.Helper()
	before := f.reached.Load()
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(t.Context(), f.network, f.address)
	if err != nil {
		t.Errorf("%s does not listen, so that silence means nothing: %v", f.what, err)
		return
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		t.Fatal(err)
	}
	if f.network == "udp" {
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Errorf("%s: %v", f.what, err)
		}
	}
	answer := make([]byte, len(welcome))
	if n, err := c.Read(answer); err != nil || string(answer[:n]) != welcome || f.reached.Load() == before {
		t.Errorf("%s answers %q, %v", f.what, answer[:n], err)
	}
}

// host and port are those of an address.
func (f *forbidden) hostPort(t *testing.T) (host string, port uint16) {
	t.Helper()
	a, err := netip.ParseAddrPort(f.address)
	if err != nil {
		t.Fatal(err)
	}
	return a.Addr().String(), a.Port()
}
