package identity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

const (
	defaultDialTimeout      = 5 * time.Second
	defaultHandshakeTimeout = 5 * time.Second
	defaultIdleTimeout      = time.Minute

	pingAfter       = 15 * time.Second // of silence on a connection with open streams
	pingTimeout     = 10 * time.Second
	writeTimeout    = 30 * time.Second // for any byte to leave
	maxHeaderBytes  = 64 << 10
	maxRetired      = 4
	unixAddrPrefix  = "unix://"
	maxIdleConns    = 16
	maxIdlePerHost  = 4
	keepAlivePeriod = 30 * time.Second
	maxAhead        = 1 << 20 // bytes of an answer that nobody has read; net/http would take 4 MiB for each stream
)

// ClientOptions are the options of [HTTPClient]. The zero value dials the host of each URL.
type ClientOptions struct {
	// Address, if set, is dialed whatever the host of the URL: unix:///absolute/path or host:port.
	Address string
	// Dial, if set, opens every connection instead of Address and the host of the URL.
	Dial func(context.Context) (net.Conn, error)
	// DialTimeout bounds opening a connection; zero is 5 s.
	DialTimeout time.Duration
	// HandshakeTimeout bounds the TLS handshake; zero is 5 s.
	HandshakeTimeout time.Duration
	// IdleTimeout is how long a connection without a stream is kept; zero is 1 min.
	IdleTimeout time.Duration
	// AllowHTTP1 lets a server choose HTTP/1.1 in ALPN. Otherwise only HTTP/2 is offered.
	AllowHTTP1 bool
}

// HTTPClient returns an HTTP client that speaks to exactly the server with the given ID, as [ClientTLS] does.
//
// It speaks HTTP/2 over TLS and refuses a URL that is not https. It follows no redirect and uses no proxy. It sets no
// deadline for a request, which may be a stream: give each one a context that ends. The first request after a rotation
// of src opens a new connection; streams on the old one come to their end there. CloseIdleConnections closes every
// connection without a stream. Of an answer that is not read at most 1 MiB is taken from the server.
func HTTPClient(src Source, server spiffeid.ID, opts ClientOptions) *http.Client {
	return &http.Client{
		Transport: &transport{src: src, server: server, opts: opts},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// transport keeps one http.Transport for as long as neither the SVID nor the authorities change.
type transport struct {
	src    Source
	server spiffeid.ID
	opts   ClientOptions

	mu      sync.Mutex
	svid    *x509svid.SVID
	bundle  *x509bundle.Bundle
	current *http.Transport
	retired []*http.Transport // may still have streams; at most maxRetired, the oldest first
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	current, err := t.pick(req)
	if err != nil {
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close())
		}
		return nil, err
	}
	return current.RoundTrip(req)
}

// CloseIdleConnections implements what http.Client.CloseIdleConnections looks for.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
	t.closeRetiredLocked()
}

func (t *transport) pick(req *http.Request) (*http.Transport, error) {
	if req.URL.Scheme != "https" {
		return nil, fmt.Errorf("identity: refused to send a request over %q: only https proves who the server is", req.URL.Scheme)
	}
	svid, err := t.src.SVID()
	if err != nil {
		return nil, err
	}
	bundle, err := t.src.Bundle()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil && t.svid == svid && t.bundle == bundle {
		return t.current, nil
	}
	if t.current != nil {
		t.retired = append(t.retired, t.current)
	}
	t.svid, t.bundle, t.current = svid, bundle, t.build()
	t.closeRetiredLocked()
	return t.current, nil
}

// closeRetiredLocked closes what has no stream any more. A retired connection whose stream ends later closes when it has
// been idle for IdleTimeout, also if its transport is forgotten here.
func (t *transport) closeRetiredLocked() {
	for _, r := range t.retired {
		r.CloseIdleConnections()
	}
	if extra := len(t.retired) - maxRetired; extra > 0 {
		t.retired = slices.Delete(t.retired, 0, extra)
	}
}

func (t *transport) build() *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	protocols.SetHTTP1(t.opts.AllowHTTP1) // net/http offers in ALPN what it may speak
	return &http.Transport{
		Proxy:                  nil, // never from the environment
		DialContext:            t.dial,
		TLSClientConfig:        ClientTLS(t.src, t.server),
		TLSHandshakeTimeout:    orDefault(t.opts.HandshakeTimeout, defaultHandshakeTimeout),
		DisableCompression:     true, // each protocol above compresses for itself
		MaxIdleConns:           maxIdleConns,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        orDefault(t.opts.IdleTimeout, defaultIdleTimeout),
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              &protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  pingAfter,
			PingTimeout:      pingTimeout,
			WriteByteTimeout: writeTimeout,

			MaxReceiveBufferPerStream: maxAhead,
		},
	}
}

func (t *transport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, orDefault(t.opts.DialTimeout, defaultDialTimeout))
	defer cancel()
	if t.opts.Dial != nil {
		return t.opts.Dial(ctx)
	}
	if path, ok := strings.CutPrefix(t.opts.Address, unixAddrPrefix); ok {
		network, address = "unix", path
	} else if t.opts.Address != "" {
		address = t.opts.Address
	}
	dialer := net.Dialer{KeepAlive: keepAlivePeriod}
	return dialer.DialContext(ctx, network, address)
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
