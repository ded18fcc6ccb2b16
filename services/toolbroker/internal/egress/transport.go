package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Bounds of a connection.
const (
	lookupTimeout    = 5 * time.Second
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 10 * time.Second
	// Less than the 5 s after which common servers close a connection: a request
	// that meets the closing is one of which nobody knows what it did.
	idleTimeout    = 3 * time.Second
	maxHeaderBytes = 64 << 10
	maxIdle        = 8
	maxAddresses   = 16
	// MaxBody bounds the body of one response, in bytes.
	MaxBody = 64 << 20
)

// Resolver looks names up.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Transport is an http.RoundTripper within a Policy. It is safe for concurrent
// use. It never sends a request twice of which a byte has left.
type Transport struct {
	policy   Policy
	resolver Resolver
	inner    *http.Transport
}

// New makes a Transport. A nil resolver is the machine's.
func New(p Policy, r Resolver) *Transport {
	if r == nil {
		r = net.DefaultResolver
	}
	t := &Transport{policy: p, resolver: r}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	t.inner = &http.Transport{
		Proxy:                  nil, // not from the environment
		DialContext:            t.dialPlain,
		DialTLSContext:         t.dialTLS,
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ExpectContinueTimeout:  time.Second,
	}
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	err := t.policy.host(req.URL)
	if err == nil && req.URL.Scheme != "https" && req.URL.Scheme != "http" {
		err = &URLError{"neither https nor http"}
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper closes it
		}
		return nil, err
	}
	res, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.ContentLength > MaxBody {
		_ = res.Body.Close() // it is not read
		return nil, ErrTooLarge
	}
	res.Body = &bounded{body: res.Body, left: MaxBody}
	return res, nil
}

// CloseIdleConnections closes connections that nobody uses.
func (t *Transport) CloseIdleConnections() { t.inner.CloseIdleConnections() }

// ErrTooLarge says that a response is over its bound.
var ErrTooLarge = errors.New("egress: the response is too large")

// bounded is a body that ends with an error at its bound.
type bounded struct {
	body io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (b *bounded) Close() error { return b.body.Close() }

// ErrPlain says that a connection without TLS would go where the operator has not
// allowed it.
var ErrPlain = errors.New("egress: HTTP without TLS, to an address that the operator has not allowed")

func (t *Transport) dialPlain(ctx context.Context, network, address string) (net.Conn, error) {
	return t.dial(ctx, network, address, true)
}

func (t *Transport) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	conn, err := t.dial(ctx, network, address, false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	secure := tls.Client(conn, &tls.Config{
		ServerName: host, RootCAs: t.policy.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("egress: TLS: %w", err), conn.Close())
	}
	return secure, nil
}

// dial resolves, checks and connects.
func (t *Transport) dial(ctx context.Context, network, address string, plain bool) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || !t.port(uint16(n)) {
		return nil, &URLError{"a port that is not allowed"}
	}
	found, err := t.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	// One forbidden address among others is a reason to believe none of them.
	for _, addr := range found {
		opened, err := check(addr, t.policy.Allow)
		if err != nil {
			return nil, err
		}
		if plain && !opened {
			return nil, ErrPlain
		}
	}
	var errs []error
	for _, addr := range found {
		d := net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: t.control}
		conn, err := d.DialContext(ctx, network, netip.AddrPortFrom(addr, uint16(n)).String())
		if err == nil {
			return conn, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// control looks once more at what the kernel is about to connect to.
func (t *Transport) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	_, err = check(ap.Addr(), t.policy.Allow)
	return err
}

func (t *Transport) port(n uint16) bool {
	if len(t.policy.Ports) == 0 {
		return n == 443
	}
	return slices.Contains(t.policy.Ports, n)
}

// resolve gives all addresses of a host, without doubles.
func (t *Transport) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := t.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("egress: look-up: %w", err)
	}
	if len(found) == 0 || len(found) > maxAddresses {
		return nil, fmt.Errorf("egress: look-up: %d addresses", len(found))
	}
	return found, nil
}
