package identity_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
)

// countDials returns a Dial for ClientOptions that connects to a Unix socket and counts. Requests come one at a time.
func countDials(n *int, address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		*n++
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
	}
}

func TestHTTPClientIsPinnedToOneServer(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Sandbox("i-1"))
	caller := domain.Source(t, domain.Service("controlplane"))
	address := serve(t, server, identity.AllowList{identity.Exactly(caller.ID())}, http.HandlerFunc(whoami))
	opts := identity.ClientOptions{Address: address}

	if got, err := get(t, client(t, caller, server.ID(), opts)); err != nil || got != who(t, caller) {
		t.Fatalf("the server that is meant: %q, %v", got, err)
	}
	if got, err := get(t, client(t, caller, domain.Sandbox("i-2"), opts)); err == nil {
		t.Errorf("the next instance behind the same address answered %q", got)
	}
}

// A secret in a request must not leave by any way but the connection to the server that is meant.
func TestHTTPClientTakesNoOtherWay(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	caller := domain.Source(t, domain.Service("controlplane"))
	mux := http.NewServeMux()
	mux.HandleFunc("/", whoami)
	mux.Handle("/away", http.RedirectHandler("https://elsewhere.test/", http.StatusTemporaryRedirect))
	address := serve(t, server, identity.AllowList{identity.Exactly(caller.ID())}, mux)
	c := client(t, caller, server.ID(), identity.ClientOptions{Address: address})

	t.Run("no proxy", func(t *testing.T) { // TestMain has set one
		if got, err := get(t, c); err != nil || got != who(t, caller) {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("no redirect", func(t *testing.T) {
		if _, err := getURL(t, c, "https://server.test/away"); err == nil || err.Error() != "status 307" {
			t.Errorf("got %v, want the redirect itself", err)
		}
	})
	for _, scheme := range []string{"http", "HTTP", "ftp", ""} {
		t.Run("no scheme "+scheme, func(t *testing.T) {
			dials := 0
			c := client(t, caller, server.ID(), identity.ClientOptions{Dial: countDials(&dials, address), AllowHTTP1: true})
			body := &closeRecorder{Reader: strings.NewReader("secret")}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://server.test/", body)
			if err != nil {
				t.Fatal(err)
			}
			req.URL.Scheme = scheme
			resp, err := c.Transport.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
				t.Error("it was sent")
			}
			if dials != 0 || !body.closed {
				t.Errorf("dials: %d, body closed: %v", dials, body.closed)
			}
		})
	}
}

func TestHTTPClientProtocol(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	caller := domain.Source(t, domain.Service("controlplane"))
	address := serveHTTP1(t, server, identity.AllowList{identity.Exactly(caller.ID())})
	if got, err := get(t, client(t, caller, server.ID(), identity.ClientOptions{Address: address})); err == nil {
		t.Errorf("got %q over HTTP/1.1, which was not allowed", got)
	}
	c := client(t, caller, server.ID(), identity.ClientOptions{Address: address, AllowHTTP1: true})
	if got, err := get(t, c); err != nil || !strings.HasPrefix(got, "HTTP/1.1 ") {
		t.Errorf("got %q, %v, want HTTP/1.1", got, err)
	}
}

func TestHTTPClientDialsAnAddress(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	caller := domain.Source(t, domain.Service("controlplane"))
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, listener, &http.Server{
		Handler: http.HandlerFunc(whoami), TLSConfig: identity.ServerTLS(server, identity.AllowList{identity.Exactly(caller.ID())}),
		ReadHeaderTimeout: patience,
	})
	for name, tc := range map[string]struct{ address, url string }{
		"address":     {listener.Addr().String(), "https://server.test/"},
		"host of URL": {"", "https://" + listener.Addr().String() + "/"},
	} {
		t.Run(name, func(t *testing.T) {
			c := client(t, caller, server.ID(), identity.ClientOptions{Address: tc.address})
			if got, err := getURL(t, c, tc.url); err != nil || got != who(t, caller) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// A peer that accepts and says nothing does not hold a caller for longer than the handshake may take.
func TestHTTPClientHandshakeIsBounded(t *testing.T) {
	domain := identitytest.New(t)
	caller := domain.Source(t, domain.Service("controlplane"))
	mute, ours := net.Pipe()
	defer mute.Close()
	c := client(t, caller, domain.Service("toolbroker"), identity.ClientOptions{
		HandshakeTimeout: 20 * time.Millisecond,
		Dial:             func(context.Context) (net.Conn, error) { return ours, nil },
	})
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, mute)
	}()
	if _, err := get(t, c); err == nil || !strings.Contains(err.Error(), "handshake timeout") {
		t.Errorf("got %v, want a handshake timeout", err)
	}
	<-drained
}

func TestHTTPClientDialIsBounded(t *testing.T) {
	domain := identitytest.New(t)
	caller := domain.Source(t, domain.Service("controlplane"))
	c := client(t, caller, domain.Service("toolbroker"), identity.ClientOptions{
		DialTimeout: 20 * time.Millisecond,
		Dial: func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	begun := time.Now()
	if _, err := get(t, c); err == nil || time.Since(begun) > patience/2 {
		t.Errorf("got %v after %s", err, time.Since(begun))
	}
}

func TestHTTPClientNeedsAnIdentity(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	caller := domain.Source(t, domain.Service("controlplane"))
	address := serve(t, server, identity.AllowList{identity.Exactly(caller.ID())}, http.HandlerFunc(whoami))
	c := client(t, caller, server.ID(), identity.ClientOptions{Address: address})
	if _, err := get(t, c); err != nil {
		t.Fatal(err)
	}
	if err := caller.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := get(t, c); err == nil {
		t.Errorf("after the source was closed: %q", got)
	}
}

type closeRecorder struct {
	io.Reader
	closed bool
}

func (c *closeRecorder) Close() error {
	c.closed = true
	return nil
}

// serveHTTP1 serves whoami as a server does that has no HTTP/2.
func serveHTTP1(t *testing.T, src identity.Source, allow identity.AllowList) string {
	t.Helper()
	config := identity.ServerTLS(src, allow)
	inner := config.GetConfigForClient
	config.NextProtos = []string{"http/1.1"}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := inner(hello)
		if err == nil {
			c.NextProtos = []string{"http/1.1"}
		}
		return c, err
	}
	listener, address := unixListener(t)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	serveOn(t, listener, &http.Server{
		Handler: http.HandlerFunc(whoami), TLSConfig: config, Protocols: &protocols, ReadHeaderTimeout: patience,
	})
	return address
}
