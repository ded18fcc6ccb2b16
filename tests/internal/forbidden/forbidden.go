package forbidden

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
	"time"
)

// dialTimeout bounds one look at a listener.
const dialTimeout = 30 * time.Second

// Target is something that listens where a sandbox must not get, answers, and
// counts who came.
type Target struct {
	// What it is, for people, and where.
	What, Network, Address string

	reached atomic.Int64
	close   func()
}

// places are where the forbidden things of a network are.
func places() []*Target {
	return []*Target{
		{What: "a program on the host's loopback", Network: "tcp", Address: "127.0.0.1:8999"},
		{What: "another address of the host's loopback", Network: "tcp", Address: "127.9.8.7:8080"},
		{What: "the metadata service", Network: "tcp", Address: "169.254.169.254:80"},
		{What: "the metadata service of containers", Network: "tcp", Address: "169.254.170.2:80"},
		{What: "the Kubernetes API", Network: "tcp", Address: "10.96.0.1:443"},
		{What: "a kubelet", Network: "tcp", Address: "10.0.0.7:10250"},
		{What: "MongoDB", Network: "tcp", Address: "127.0.0.1:27017"},
		{What: "PostgreSQL", Network: "tcp", Address: "10.0.0.7:5432"},
		{What: "a container engine", Network: "tcp", Address: "172.17.0.1:2375"},
		{What: "the resolver of the host", Network: "udp", Address: "127.0.0.53:53"},
		{What: "the cluster's DNS", Network: "udp", Address: "10.96.0.10:53"},
		{What: "DNS outside", Network: "udp", Address: "8.8.8.8:53"},
		{What: "DNS outside over TCP", Network: "tcp", Address: "8.8.8.8:53"},
		{What: "DNS outside over TLS", Network: "tcp", Address: "1.1.1.1:853"},
		{What: "DNS outside over HTTPS", Network: "tcp", Address: "1.1.1.1:443"},
		{What: "a host outside", Network: "tcp", Address: "93.184.215.14:443"},
	}
}

// Addresses are those of the places that no loopback has by itself.
func Addresses() []netip.Addr {
	var all []netip.Addr
	for _, f := range places() {
		if a := netip.MustParseAddrPort(f.Address).Addr(); !a.IsLoopback() && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// Listen opens everything that is forbidden: the places of the network, a socket
// of a container engine in the folder, and an abstract socket.
func Listen(ctx context.Context, folder string) (all []*Target, err error) {
	all = append(places(),
		&Target{What: "the socket of a container engine", Network: "unix", Address: filepath.Join(folder, "engine.sock")},
		&Target{What: "an abstract socket of the host", Network: "unix", Address: fmt.Sprintf("@cofferdam-forbidden-%d", os.Getpid())})
	defer func() {
		if err != nil {
			Close(all)
		}
	}()
	for _, f := range all {
		if err := f.listen(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", f.What, err)
		}
	}
	return all, os.Chmod(filepath.Join(folder, "engine.sock"), 0o666)
}

// Close ends the listeners.
func Close(all []*Target) {
	for _, f := range all {
		if f.close != nil {
			f.close()
		}
	}
}

// welcome is what every forbidden thing answers.
const welcome = "forbidden, and reached"

func (f *Target) listen(ctx context.Context) error {
	if f.Network == "udp" {
		return f.listenPackets(ctx)
	}
	l, err := new(net.ListenConfig).Listen(ctx, f.Network, f.Address)
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

func (f *Target) listenPackets(ctx context.Context) error {
	c, err := new(net.ListenConfig).ListenPacket(ctx, f.Network, f.Address)
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

// Reached is how often somebody has come.
func (f *Target) Reached() int64 { return f.reached.Load() }

// Dial reaches it as whoever calls, and has it say that it was reached.
func (f *Target) Dial(ctx context.Context) error {
	before := f.reached.Load()
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, f.Network, f.Address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if f.Network == "udp" {
		if _, err := c.Write([]byte("hello")); err != nil {
			return err
		}
	}
	answer := make([]byte, len(welcome))
	if n, err := c.Read(answer); err != nil || string(answer[:n]) != welcome || f.reached.Load() == before {
		return fmt.Errorf("answers %q: %w", answer[:n], errors.Join(err, errOther))
	}
	return nil
}

var errOther = errors.New("it is something else that answers")
