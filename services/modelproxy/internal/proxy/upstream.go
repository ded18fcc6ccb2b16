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
	"net/url"
	"os"
	"syscall"

	"cofferdam.dev/pkg/fault"
)

// maxHeader bounds the header of an upstream's answer, in bytes.
const maxHeader = 64 << 10

// upstream is where the calls of one alias go. It has its own connections, so
// that no two aliases share one.
type upstream struct {
	name      string
	base      map[Wire]*url.URL // of the wires that it speaks
	model     string
	sideModel string
	main      map[string]bool // names under which the model itself is asked for
	keyFile   string
	admission admission
	noRetry   bool
	limits    Limits
	trip      http.RoundTripper // without redirects and cookies, which http.Client adds
	close     func()
}

func newUpstream(name string, a Alias, l Limits, demo http.Handler) (*upstream, error) {
	if name == "" || len(name) > 128 {
		return nil, errors.New("the name must have 1 to 128 bytes")
	}
	up := &upstream{
		name: name, model: a.Model, sideModel: a.SideModel, main: set(a.Names...), keyFile: a.KeyFile,
		admission: admission{further: set(a.Fields...), drop: a.DropUnknown}, noRetry: a.NoRetry,
		limits: l, close: func() {},
	}
	if up.model == "" {
		up.model = name
	}
	if up.sideModel == "" {
		up.sideModel = up.model
	}
	up.main[name], up.main[up.model] = true, true
	switch a.Kind {
	case KindDemo:
		return up, up.toDemo(a, demo)
	case KindOpenAI, KindAnthropic, KindGemini, "":
		return up, up.toRemote(a)
	default:
		return nil, fmt.Errorf("kind must be %q, %q, %q or %q", KindOpenAI, KindAnthropic, KindGemini, KindDemo)
	}
}

// toDemo leads to the demo model. It cannot act, so whatever it is asked for
// beyond an answer is dropped.
func (u *upstream) toDemo(a Alias, demo http.Handler) error {
	if demo == nil {
		return errors.New("there is no demo model in this process")
	}
	u.base = make(map[Wire]*url.URL)
	for _, w := range wires() {
		u.base[w] = &url.URL{Scheme: "http", Host: "demo", Path: "/v1"}
	}
	u.base[Gemini] = &url.URL{Scheme: "http", Host: "demo", Path: "/v1beta"}
	u.admission.drop = true
	u.trip = inProcess{demo}
	return a.validateDemo()
}

func (u *upstream) toRemote(a Alias) error {
	base, loopback, err := a.base()
	speaks, wiresErr := a.speaks()
	_, keyErr := readKey(a.KeyFile)
	roots, rootsErr := readRoots(a.CAFile)
	if err := errors.Join(err, wiresErr, keyErr, rootsErr); err != nil {
		return err
	}
	u.base = make(map[Wire]*url.URL)
	for _, w := range speaks {
		u.base[w] = base
	}
	transport := newTransport(u.limits, roots, loopback)
	u.trip, u.close = transport, transport.CloseIdleConnections
	return nil
}

// isSide reports whether a call asks for another model than the alias's.
func (u *upstream) isSide(model string) bool { return !u.main[model] }

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
	model := u.model
	if u.isSide(req.model) {
		model = u.sideModel
	}
	body, err := req.encode(model)
	if err != nil {
		return nil, err
	}
	key, err := readKey(u.keyFile)
	if err != nil { // it could be read once; it is being replaced, or was taken away
		return nil, unavailable(errKeyFile)
	}
	w := newWatch(ctx)
	a, err := u.ask(w, req, req.to.address(u.base[req.to.wire], model)+req.query, body, key)
	if err != nil {
		w.end()
		return nil, err
	}
	return a, nil
}

// ask sends a request of its own. Of the caller's header there is in it what the
// wire keeps there, and so neither its capability nor its envelope.
func (u *upstream) ask(w *watch, req *request, address string, body []byte, key secret) (*answer, error) {
	out, err := http.NewRequestWithContext(w.ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New(fault.Internal, "proxy.send")
	}
	out.Header = req.header.Clone()
	out.Header.Set("Content-Type", mediaJSON)
	out.Header.Set("Accept", mediaType(req.stream))
	out.Header.Set("User-Agent", "cofferdam-modelproxy")
	req.to.wire.credential(out.Header, key)
	w.expect(u.limits.HeaderTimeout, errLate)
	res, err := u.trip.RoundTrip(out)
	if err == nil {
		err = checkAnswer(res, req.stream) // may read the body, within the same time
	} else {
		err = transportFailure(w.ctx, err, unavailable)
	}
	w.pause()
	if res == nil {
		return nil, err
	}
	if err != nil {
		w.end()
		_ = res.Body.Close() // nothing of it is wanted
		return nil, err
	}
	return &answer{
		status: res.StatusCode, body: res.Body, watch: w, key: key, idle: u.limits.IdleTimeout, left: 2 * u.limits.MaxStream,
	}, nil
}
