//go:build cluster

package installation

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/gate"
)

const (
	gateNamespace = "gate"
	gatePort      = 18090
	// gateTimeout bounds a call of the gate, and so how long one whose outcome is unknown
	// is waited for.
	gateTimeout = 30 * time.Second
)

var gateAddress = fmt.Sprintf("%s:%d", kube.Host, gatePort)

// gatePolicy lets ToolBroker reach the gate, which is outside of the cluster.
var gatePolicy = fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: tests-gate, namespace: %s}
spec:
  podSelector: {matchLabels: {app.kubernetes.io/name: toolbroker}}
  policyTypes: [Egress]
  egress:
  - to: [{ipBlock: {cidr: %s/32}}]
    ports: [{port: %d}]
`, System, kube.Host, gatePort)

// openGate serves the tool gate.pass on the cluster's machine, by this very process.
func (i *Installation) openGate(t testing.TB) {
	t.Helper()
	i.Gate.Folder = i.folder
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", gateAddress)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", gate.HTTP(i.Gate.Folder))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: kube.Patience}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	i.close = append(i.close, func() error {
		if err := errors.Join(server.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// Pass is the line of a message that has the gate called under a name.
func Pass(name string) string { return fmt.Sprintf(">>call gate.pass {\"name\":%q}", name) }

// Read is the line of a message that has one of the overlay's sample files read.
func Read(name string) string { return fmt.Sprintf(">>call fs.read_text_file {\"path\":%q}", name) }

// Calls waits until a run calls the gate under a name, which it must do before it ends.
func (c *Talk) Calls(t testing.TB, run apiclient.Started, name string) {
	t.Helper()
	Until(t, "a call of the gate as "+name, func() (bool, error) {
		status, err := c.User.Run(t.Context(), run.RunID) // asked first: the call is seen, or was not made
		if err != nil {
			return false, err
		}
		n, err := c.Installation.Gate.Calls(name)
		if err == nil && n == 0 && status.State == "ended" {
			t.Fatalf("the gate was not called as %s: %s", name, c.End(t, run))
		}
		return n > 0, err
	})
}
