//go:build cluster

package installation

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/procs"
)

// guest is a conversation in the middle of a run, with all that can be taken from its worker.
type guest struct {
	*installation.Talk
	impostor.Captured

	run  apiclient.Started
	seat installation.Seat
	mark string // which the agent has said
}

// busy begins a run that says a mark and then sleeps for minutes, and looks into its worker. The run ends with the test.
func busy(t *testing.T, i *installation.Installation, agent string) *guest {
	t.Helper()
	g := &guest{Talk: i.Talk(t, agent), mark: "mark-" + rand.Text()}
	g.Files = []apiclient.File{{Name: "note.txt", MIMEType: "text/plain", Data: []byte(g.mark)}} // for which it gets a capability
	g.run = g.Begin(t, ">>say "+g.mark+strings.Repeat("\n>>sleep 60000", 8))
	t.Cleanup(func() { g.cancel(t) }) // before the conversation is released
	g.Sees(t, g.run, "text.delta")
	g.seat = i.Seat(t, g.run.BindingID)
	var err error
	if g.Captured, err = impostor.Capture(g.seat.Binding, installation.Process(t, g.seat.Pod, "worker"), g.run); err != nil {
		t.Fatal(err)
	}
	return g
}

// cancel ends the run, once.
func (g *guest) cancel(t *testing.T) {
	t.Helper()
	if g.run.RunID == "" {
		return
	}
	if _, err := g.Talk.User.Cancel(context.WithoutCancel(t.Context()), g.run.RunID); err != nil {
		t.Error(err)
	}
	g.run.RunID = ""
}

// held are calls of a sandbox, each with the capability of the right audience.
func (g *guest) held(version string) []impostor.Call {
	var calls []impostor.Call
	for _, o := range []struct {
		what     string
		audience capability.Audience
	}{
		{"statefacade load", capability.ThreadState},
		{"statefacade write", capability.ThreadState},
		{"statefacade remember", capability.Memory},
		{"model", capability.ModelProxy},
		{"toolbroker call", capability.ToolBroker},
		{"filebroker download", capability.FileBroker},
	} {
		calls = append(calls, impostor.Call{
			What: o.what, Token: g.Tokens[o.audience], Envelope: g.Envelope, Adapter: impostor.Adapter{Harness: "native", Version: version},
		})
	}
	return calls
}

// Of two sandboxes at work, one is wholly taken over: from its pod, with its user, its identity and its capabilities. Each broker
// grants it its own run and nothing more: not without a capability, not with the other pod's, and not without an identity,
// whoever's capability is shown.
func TestBrokersRefuseWhoIsNotTheSandbox(t *testing.T) {
	i := installation.Shared(t, config)
	own, other := busy(t, i, installation.Agent), busy(t, i, installation.Agent)
	w := &walls{Installation: i, seat: own.seat, inside: i.Cluster.Inside(t, own.seat.Pod)}
	addresses := map[string]string{}
	for _, name := range brokers {
		addresses[name] = "https://" + w.service(t, installation.System, name) + ":8443"
	}
	attacker, err := own.StartInPod(t.Context(), procs.Process{PID: own.Worker.PID}, addresses)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := attacker.Close(); err != nil {
			t.Error(err)
		}
	}()
	version := adapterVersion(t, i)

	lawful := own.held(version)
	mixed, stolen, without := own.held(version), other.held(version), own.held(version)
	for n := range lawful {
		mixed[n].Envelope, without[n].Token = other.Envelope, ""
	}
	for _, c := range []struct {
		name  string
		calls []impostor.Call
		want  string
	}{
		{"its own capabilities for its own run", lawful, impostor.Granted},
		{"its own capabilities for the other's run", mixed, "capability_scope"},
		{"the other's capabilities for the other's run", stolen, "capability_invalid"},
		{"no capability", without, "capability_missing"},
		{"a capability for another broker", []impostor.Call{{What: "filebroker download", Envelope: own.Envelope, Token: own.Tokens[capability.ThreadState]}}, "audience_mismatch"},
		{"to mint a capability", []impostor.Call{{What: "capability mint", Envelope: own.Envelope, Token: own.Tokens[capability.ThreadState]}}, "caller_not_allowed"},
		{"its own capabilities for its own run, again", lawful, impostor.Granted},
	} {
		said, err := attacker.Make(c.calls...)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for n, got := range said {
			if c.want == impostor.Granted && c.calls[n].What == "filebroker download" && got == "handle_denied" {
				continue // it was let in, and has no such file
			}
			if got != c.want {
				t.Errorf("%s, %s: %s, want %s", c.name, c.calls[n].What, got, c.want)
			}
		}
	}

	for kind, certificate := range map[string]*tls.Certificate{"no certificate": nil, "a certificate of its own making": forged(t, own.Binding.Sandbox.SPIFFEID)} {
		for name, address := range addresses {
			_, err := w.anonymous(t, strings.TrimPrefix(address, "https://"), certificate)
			if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
				t.Errorf("%s with %s: %v, want a handshake that is refused", name, kind, err)
			}
		}
	}
	own.cancel(t)
	other.cancel(t)
}

// adapterVersion is that of the native harness, which a worker tells the state facade.
func adapterVersion(t *testing.T, i *installation.Installation) string {
	t.Helper()
	var described struct {
		Version string `json:"adapter_version"`
	}
	if err := json.Unmarshal(i.Program(t, nil, "worker", "describe", "--harness", "native"), &described); err != nil || described.Version == "" {
		t.Fatalf("worker describe: %+v, %v", described, err)
	}
	return described.Version
}

// forged is a certificate for a SPIFFE ID that no authority has signed.
func forged(t *testing.T, id string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}
