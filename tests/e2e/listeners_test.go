package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/procs"
	"cofferdam.dev/tests/internal/secrets"
)

// services are the programs with an identity, whose main listener wants one too.
func services() []string {
	return []string{"capability", "toolbroker", "statefacade", "filebroker", "modelproxy", "controlplane"}
}

// listening gives the addresses at which the programs of the stack listen.
func (w *world) listening(t *testing.T) map[string][]netip.AddrPort {
	t.Helper()
	all, err := w.Processes()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]netip.AddrPort{}
	for _, p := range all {
		addresses, err := procs.Listeners(p.PID)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		found[p.Program()] = append(found[p.Program()], addresses...)
	}
	return found
}

// httpClient takes any certificate, since it wants to see who answers.
func httpClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server is what is under test
		DisableKeepAlives: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: conditionTimeout}
}

func get(ctx context.Context, client *http.Client, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	raw, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	return res.StatusCode, string(raw), err
}

// Nothing of a stack can be reached from another machine, and its services speak
// to nobody who has no identity of it.
func TestTheServicesSpeakToNobodyWithoutAnIdentity(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	w.talk().tell(t, "so that there is a worker")
	client := httpClient(t)
	listening := w.listening(t)
	for program, addresses := range listening {
		for _, address := range addresses {
			if !address.Addr().IsLoopback() {
				t.Errorf("%s listens at %s", program, address)
			}
			if status, _, err := get(t.Context(), client, "https://"+address.String()+"/"); err == nil {
				t.Errorf("%s answers %d at %s although the client has no certificate", program, status, address)
			}
		}
	}
	for _, program := range services() {
		tlsOnly := slices.ContainsFunc(listening[program], func(a netip.AddrPort) bool {
			_, body, err := get(t.Context(), client, "http://"+a.String()+"/")
			return err == nil && strings.Contains(body, "HTTP request to an HTTPS server")
		})
		if !tlsOnly {
			t.Errorf("%s has no listener that wants TLS: %v", program, listening[program])
		}
	}
	if addresses := listening["worker"]; len(addresses) > 0 {
		t.Errorf("the worker has no network, and listens at %v", addresses)
	}
	w.checkSockets(t, 5, filepath.Join("run", "svc"))
	w.checkSockets(t, 1, filepath.Join("run", "w"))
}

// checkSockets does the same at the Unix sockets of a folder: those of the services
// that sandboxes may call, and those of the workers.
func (w *world) checkSockets(t *testing.T, atLeast int, folder string) {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(w.Data, folder, "*.sock"))
	if err != nil || len(sockets) < atLeast {
		t.Fatalf("sockets in %s: %v, %v", folder, sockets, err)
	}
	for _, path := range sockets {
		transport := &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the server is what is under test
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", path)
			},
		}
		client := &http.Client{Transport: transport, Timeout: conditionTimeout}
		if status, _, err := get(t.Context(), client, "https://local/"); err == nil {
			t.Errorf("%d at %s although the client has no certificate", status, path)
		}
		if _, body, err := get(t.Context(), client, "http://local/"); err != nil || !strings.Contains(body, "HTTP request to an HTTPS server") {
			t.Errorf("%s does not want TLS: %q, %v", path, body, err)
		}
		transport.CloseIdleConnections()
	}
}

// checkMetrics checks what the services publish for operators.
func (w *world) checkMetrics(t *testing.T, s secrets.Secrets, private ...string) {
	t.Helper()
	client := httpClient(t)
	listening := w.listening(t)
	for _, program := range services() {
		published := 0
		for _, address := range listening[program] {
			status, body, err := get(t.Context(), client, "http://"+address.String()+"/metrics")
			if err != nil || status != http.StatusOK {
				continue
			}
			published += len(body)
			for _, text := range private {
				if strings.Contains(body, text) {
					t.Errorf("the metrics of %s tell of a conversation: %q", program, text)
				}
			}
			if found := s.In(body); len(found) > 0 {
				t.Errorf("the metrics of %s show %v", program, found)
			}
		}
		if published == 0 {
			t.Errorf("%s publishes no metrics", program)
		}
	}
}
