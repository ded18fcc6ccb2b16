package identity_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
)

// serve runs an HTTPS server over a Unix socket until the end of the test and returns its address for ClientOptions.
func serve(t *testing.T, src identity.Source, allow identity.AllowList, handler http.Handler) string {
	t.Helper()
	listener, address := unixListener(t)
	serveOn(t, listener, &http.Server{Handler: handler, TLSConfig: identity.ServerTLS(src, allow), ReadHeaderTimeout: patience})
	return address
}

func unixListener(t *testing.T) (listener net.Listener, address string) {
	t.Helper()
	var config net.ListenConfig
	path := filepath.Join(t.TempDir(), "s")
	listener, err := config.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return listener, "unix://" + path
}

func serveOn(t *testing.T, listener net.Listener, server *http.Server) {
	t.Helper()
	server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // the client's side is where the tests look
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// client returns an HTTPClient that is tidied up at the end of the test.
func client(t *testing.T, src identity.Source, server spiffeid.ID, opts identity.ClientOptions) *http.Client {
	t.Helper()
	c := identity.HTTPClient(src, server, opts)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// get returns the body of an answer, which is 200.
func get(t *testing.T, c *http.Client) (string, error) {
	t.Helper()
	return getURL(t, c, "https://server.test/")
}

func getURL(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(body), err
}

// whoami answers with the protocol, the ID and the serial number of the caller's certificate.
func whoami(w http.ResponseWriter, r *http.Request) {
	id, err := identity.PeerFromTLS(r.TLS)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	_, _ = fmt.Fprint(w, r.Proto, " ", id, " ", r.TLS.PeerCertificates[0].SerialNumber)
}

// echo sends every line of the request back at once.
func echo(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil {
		return
	}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		if _, err := fmt.Fprintln(w, lines.Text()); err != nil {
			return
		}
		if err := flush.Flush(); err != nil {
			return
		}
	}
}

// stream is a request that is open in both directions.
type stream struct {
	in  *io.PipeWriter
	out *bufio.Reader
}

func openStream(t *testing.T, c *http.Client) *stream {
	t.Helper()
	body, in := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://server.test/echo", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = in.Close()
		_ = resp.Body.Close()
	})
	return &stream{in: in, out: bufio.NewReader(resp.Body)}
}

func (s *stream) say(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		t.Fatalf("the stream broke: %v", err)
	}
	if got, err := s.out.ReadString('\n'); err != nil || got != line+"\n" {
		t.Fatalf("the stream answered %q, %v", got, err)
	}
}

// who is what whoami says of a source over HTTP/2 at this moment.
func who(t *testing.T, src *identitytest.Source) string {
	t.Helper()
	svid, err := src.SVID()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("HTTP/2.0 ", src.ID(), " ", svid.Certificates[0].SerialNumber)
}
