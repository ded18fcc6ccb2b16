package main

import (
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// inherited gives the address of a listener as a supervisor hands it on, and its
// URL. The descriptor belongs to whoever opens the address.
func inherited(t *testing.T, address string) (flag, url string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		t.Fatalf("%T is not a TCP listener", l)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := raw.Control(func(own uintptr) { fd, err = syscall.Dup(int(own)) }); err != nil || fd < 0 {
		t.Fatal(err)
	}
	return "fd://" + strconv.Itoa(fd), "http://" + l.Addr().String()
}

func TestServesAnInheritedListener(t *testing.T) {
	flag, url := inherited(t, "127.0.0.1:0")
	server := start(t, filepath.Join(t.TempDir(), "fga.db"), nil, "--http-listen", flag)
	if server.url != url {
		t.Errorf("announced %s, inherited %s", server.url, url)
	}
	server.call(t, http.MethodGet, "/stores", bearer, "", http.StatusOK)
}

func TestRefusesAnInheritedListenerThatOthersReach(t *testing.T) {
	flag, _ := inherited(t, "0.0.0.0:0")
	if _, err := (config{HTTPListen: flag}).listen(t.Context()); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("want a refusal that names loopback, got %v", err)
	}
}

func TestRefusesWhatIsNoDescriptor(t *testing.T) {
	for _, address := range []string{"fd://", "fd://2", "fd://-1", "fd://x", "fd://987654"} {
		if _, err := (config{HTTPListen: address}).listen(t.Context()); err == nil {
			t.Errorf("%s was taken", address)
		}
	}
}

func TestServesOthersOnlyWhenAsked(t *testing.T) {
	const everywhere = "0.0.0.0:0"
	c := config{HTTPListen: everywhere, Datastore: "d", PresharedKeyFile: "k"}
	if err := c.validate(); err == nil || !strings.Contains(err.Error(), "--allow-remote") {
		t.Errorf("want a refusal that names --allow-remote, got %v", err)
	}
	server := start(t, filepath.Join(t.TempDir(), "fga.db"), nil, "--http-listen", everywhere, "--allow-remote")
	url := strings.Replace(server.url, "[::]", "127.0.0.1", 1)
	instance{url: url}.call(t, http.MethodGet, "/stores", bearer, "", http.StatusOK)
	instance{url: url}.call(t, http.MethodGet, "/stores", "", "", http.StatusUnauthorized)
}
