package identity_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// No test of this package may notice: net/http reads these once, at the first request that would honour them.
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

const patience = time.Minute

// handshake connects a client to a server over loopback and returns what each of them says about it, and the state of the
// server's connection. A TLS 1.3 client is done before the server has looked at its certificate, so one byte goes across
// before either is believed.
func handshake(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	serverEnd, clientEnd := connect(ctx, t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn := tls.Server(serverEnd, server)
		if serverErr = conn.HandshakeContext(ctx); serverErr == nil {
			_, serverErr = conn.Write([]byte{1})
		}
		state = conn.ConnectionState()
		_ = serverEnd.Close()
	}()
	conn := tls.Client(clientEnd, client)
	clientErr = conn.HandshakeContext(ctx)
	if clientErr == nil {
		_, clientErr = io.ReadFull(conn, make([]byte, 1))
	}
	_ = clientEnd.Close()
	<-done
	return state, serverErr, clientErr
}

// connect returns the two ends of a connection that has buffers; net.Pipe has none, and would make a peer that refuses
// wait for one that is still talking.
func connect(ctx context.Context, t *testing.T) (server, client net.Conn) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	var dialer net.Dialer
	if client, err = dialer.DialContext(ctx, "tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}
