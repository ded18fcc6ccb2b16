package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"

	"cofferdam.dev/pkg/fault"
)

// maxHeader bounds the header of an upstream's answer, in bytes.
const maxHeader = 64 << 10

// upstream is where the calls of one alias go. It has its own connections, so
// that no two aliases share one.
type upstream struct {
	url     string
	model   string
	keyFile string
	fields  map[string]bool
	limits  Limits
	trip    http.RoundTripper // without redirects and cookies, which http.Client adds
	close   func()
}

func newUpstream(name string, a Alias, l Limits, demo http.Handler) (*upstream, error) {
	if name == "" || len(name) > 128 {
		return nil, errors.New("the name must have 1 to 128 bytes")
	}
	switch a.Kind {
	case KindDemo:
		if demo == nil {
			return nil, errors.New("there is no demo model in this process")
		}
		return &upstream{url: "http://demo" + Path, model: name, limits: l, trip: inProcess{demo}, close: func() {}}, a.validateDemo()
	case KindOpenAI, "":
		return newRemote(name, a, l)
	default:
		return nil, fmt.Errorf("kind must be %q or %q", KindOpenAI, KindDemo)
	}
}

func newRemote(name string, a Alias, l Limits) (*upstream, error) {
	endpoint, loopback, err := a.endpoint()
	_, keyErr := readKey(a.KeyFile)
	roots, rootsErr := readRoots(a.CAFile)
	if err := errors.Join(err, keyErr, rootsErr); err != nil {
		return nil, err
	}
	up := &upstream{
		url:     endpoint.String(),
		model:   a.Model,
		keyFile: a.KeyFile,
		fields:  make(map[string]bool, len(a.Fields)),
		limits:  l,
	}
	if up.model == "" {
		up.model = name
	}
	for _, f := range a.Fields {
		up.fields[f] = true
	}
	transport := newTransport(l, roots, loopback)
	up.trip, up.close = transport, transport.CloseIdleConnections
	return up, nil
}

// newTransport connects directly: no proxy of the environment may see a key.
func newTransport(l Limits, roots *x509.CertPool, loopback bool) *http.Transport {
	dialer := &net.Dialer{Timeout: l.DialTimeout}
	if loopback {
		dialer.Control = onlyLoopback
	}
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    l.TLSTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    l.MaxCalls,
		IdleConnTimeout:        l.IdleTimeout,
	}
}

// onlyLoopback refuses what a name such as localhost may have been made to mean.
func onlyLoopback(_, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil || !addr.Addr().Unmap().IsLoopback() {
		return errDial
	}
	return nil
}

func readRoots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no pool is the system's
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file: %s holds no PEM certificate", path)
	}
	return roots, nil
}

// send starts a call. The answer has status 200 and the media type that was
// asked for; the caller closes it.
func (u *upstream) send(ctx context.Context, req *request) (*answer, error) {
	body, err := req.encode(u.model)
	if err != nil {
		return nil, err
	}
	key, err := readKey(u.keyFile)
	if err != nil { // it could be read once; it is being replaced, or was taken away
		return nil, unavailable(errKeyFile)
	}
	w := newWatch(ctx)
	a, err := u.ask(w, body, key, req.stream)
	if err != nil {
		w.end()
		return nil, err
	}
	return a, nil
}

// ask sends a request of its own. Nothing of the caller's header is in it, and
// so neither its capability nor its envelope.
func (u *upstream) ask(w *watch, body []byte, key secret, stream bool) (*answer, error) {
	out, err := http.NewRequestWithContext(w.ctx, http.MethodPost, u.url, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Internal, "proxy.send")
	}
	out.Header.Set("Content-Type", mediaJSON)
	out.Header.Set("Accept", mediaType(stream))
	out.Header.Set("User-Agent", "cofferdam-modelproxy")
	if key.value != "" {
		out.Header.Set("Authorization", "Bearer "+key.value)
	}
	w.expect(u.limits.HeaderTimeout, errLate)
	res, err := u.trip.RoundTrip(out)
	w.pause()
	if err != nil {
		return nil, transportFailure(w.ctx, err, unavailable)
	}
	if err := checkAnswer(res, stream); err != nil {
		w.end()
		_ = res.Body.Close() // nothing of it is wanted
		return nil, err
	}
	return &answer{status: res.StatusCode, body: res.Body, watch: w, key: key, idle: u.limits.IdleTimeout}, nil
}
