// Command probe is a pod's program for the tests: it looks and dials from where it
// runs and says what it saw, as JSON over HTTP on :8080.
//
//	/healthz                            ok
//	/self                               user, capabilities, seccomp, what can be written and read
//	/dial?network=tcp|udp&address=A:P   whether somebody answers
//	/lookup?server=A:P&name=N           the addresses of a name
//
// On UDP :5353 it answers whatever it is sent: /dial over UDP waits for that.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// patience is how long a dial or a lookup may take.
const patience = 2 * time.Second

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func serve() error {
	echo, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", ":5353")
	if err != nil {
		return err
	}
	go answer(echo)
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { reply(w, "ok", nil) })
	mux.HandleFunc("/self", func(w http.ResponseWriter, _ *http.Request) { reply(w, self(), nil) })
	mux.HandleFunc("/dial", func(w http.ResponseWriter, r *http.Request) {
		reply(w, "", dial(r.Context(), r.FormValue("network"), r.FormValue("address")))
	})
	mux.HandleFunc("/lookup", func(w http.ResponseWriter, r *http.Request) {
		addresses, err := lookup(r.Context(), r.FormValue("server"), r.FormValue("name"))
		reply(w, addresses, err)
	})
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return server.ListenAndServe()
}

func reply(w http.ResponseWriter, value any, err error) {
	answer := struct {
		Value any    `json:"value,omitempty"`
		Error string `json:"error,omitempty"`
	}{Value: value}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = json.NewEncoder(w).Encode(answer) // the test notices
}

func dial(ctx context.Context, network, address string) error {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if network != "udp" {
		return nil
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "probe"); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 64))
	return err
}

func lookup(ctx context.Context, server, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	return resolver.LookupHost(ctx, strings.TrimSuffix(name, ".")+".")
}

func answer(conn net.PacketConn) {
	buffer := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		if _, err := conn.WriteTo(buffer[:n], from); err != nil {
			fmt.Fprintln(os.Stderr, "probe:", err)
		}
	}
}

// self is what the kernel grants this process, and what it can reach on disk.
func self() map[string]string {
	seen := map[string]string{"Uid": fmt.Sprint(os.Getuid())}
	status, err := os.Open("/proc/self/status")
	if err != nil {
		seen["error"] = err.Error()
		return seen
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch key {
		case "CapEff", "CapBnd", "Seccomp", "NoNewPrivs":
			seen[key] = strings.TrimSpace(value)
		}
	}
	if kernel, err := os.ReadFile("/proc/version"); err == nil {
		seen["kernel"] = string(kernel)
	}
	seen["write /"] = outcome(os.WriteFile("/written", nil, 0o600))
	_, err = os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token")
	seen["account"] = outcome(err)
	return seen
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "possible"
}
