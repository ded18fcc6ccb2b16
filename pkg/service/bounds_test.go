package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Every server of Cofferdam is made by HTTPServer; these are its bounds.
func TestBounds(t *testing.T) {
	s := HTTPServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout <= 0 || s.ReadHeaderTimeout > 30*time.Second {
		t.Errorf("headers may take %v", s.ReadHeaderTimeout)
	}
	if s.IdleTimeout <= 0 || s.IdleTimeout > 5*time.Minute {
		t.Errorf("a connection may idle for %v", s.IdleTimeout)
	}
	if s.MaxHeaderBytes <= 0 || s.MaxHeaderBytes > 64<<10 {
		t.Errorf("headers may have %d bytes", s.MaxHeaderBytes)
	}
	if n := s.HTTP2.MaxConcurrentStreams; n <= 0 || n > 1000 {
		t.Errorf("a connection may have %d streams", n)
	}
	if p, a := s.HTTP2.SendPingTimeout, s.HTTP2.PingTimeout; p <= 0 || a <= 0 || p+a > time.Minute {
		t.Errorf("a peer that vanished is noticed after %v and %v", p, a)
	}
	if s.Protocols.UnencryptedHTTP2() || !s.Protocols.HTTP2() || !s.Protocols.HTTP1() {
		t.Errorf("protocols: %v", s.Protocols)
	}
}

const soon = 50 * time.Millisecond

// Who sends headers slowly, or says nothing, is cut off.
func TestSlowHeadersAreCut(t *testing.T) {
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler ran") })
	short := func(s *http.Server) { s.ReadHeaderTimeout = soon }
	address := plain(t, never, short)
	secure, _ := encrypted(t, never, short)
	for name, c := range map[string]struct{ address, sends string }{
		"nothing at all":         {address, ""},
		"half a request line":    {address, "GET / HT"},
		"headers that go on":     {address, "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n"},
		"no TLS handshake":       {secure, ""},
		"half of a TLS record":   {secure, "\x16\x03\x01"},
		"HTTP where TLS belongs": {secure, "GET / HTTP/1.1\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.address)
			must(t, err)
			defer conn.Close()
			must(t, conn.SetDeadline(time.Now().Add(patience)))
			_, err = conn.Write([]byte(c.sends))
			must(t, err)
			if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error("still connected")
			}
		})
	}
}

// Headers beyond the bound never get to a handler.
func TestLargeHeadersAreRefused(t *testing.T) {
	var ran atomic.Int64
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran.Add(1) })
	address := plain(t, count, nil)
	secure, client := encrypted(t, count, nil)
	h1, h2 := &http.Transport{}, &http.Transport{TLSClientConfig: client, ForceAttemptHTTP2: true}
	defer h1.CloseIdleConnections()
	defer h2.CloseIdleConnections()
	for name, c := range map[string]struct {
		transport http.RoundTripper
		url       string
	}{"HTTP/1": {h1, "http://" + address}, "HTTP/2": {h2, "https://" + secure}} {
		for _, r := range []struct {
			bytes      int
			many, fits bool
		}{
			{100, false, true},
			{100, true, true},
			{30 << 10, false, true},
			{64 << 10, false, false},
			{64 << 10, true, false},
			{1 << 20, false, false},
			{1 << 20, true, false},
			{100, false, true}, // and nobody else is hurt
		} {
			before := ran.Load()
			status := send(t, c.transport, c.url, r.bytes, r.many)
			if got := ran.Load() > before; got != r.fits || got != (status == http.StatusOK) {
				t.Errorf("%s: %d bytes, many headers %v: status %d, handler ran %v", name, r.bytes, r.many, status, got)
			}
		}
	}
}

// send makes a request with so many bytes of headers and gives the status; 0 is
// none.
func send(t *testing.T, rt http.RoundTripper, url string, bytes int, many bool) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	if many {
		for i := range bytes / 20 {
			req.Header.Add(fmt.Sprintf("X-Header-%d", i), "0123456789")
		}
	} else {
		req.Header.Set("X-Header", strings.Repeat("x", bytes))
	}
	res, err := rt.RoundTrip(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	must(t, res.Body.Close())
	return res.StatusCode
}
