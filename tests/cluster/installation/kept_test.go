//go:build cluster

package installation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/gate"
)

// The agent of this name has a model and a tool that want credentials.
const (
	keptAgent = "kept"
	keptTool  = "kept"
	keptModel = 18092
	keptPort  = 18091
)

var (
	keptServer = map[string]any{
		"namespace": keptTool, "transport": "http", "url": fmt.Sprintf("http://%s:%d/mcp", kube.Host, keptPort), "timeout": "60s",
		"egress": map[string]any{"allow_cidrs": []string{kube.Host + "/32"}}, "tools": []string{gate.ToolPass},
		"credential": map[string]any{"source": "file", "path": "/etc/cofferdam/tool-credentials/kept"},
	}
	keptDefinition = map[string]any{
		"agent_id": keptAgent, "name": "Kept", "organization": "default", "harness": "native", "adapter_version": "1.1.0",
		"model_alias": keptAgent, "profile": "native", "tools": []string{keptTool + ".*"}, "prompt": "You use the tool that you are offered.",
	}
)

// keeper is an installation with a canary in each Secret that is empty in development, and the model and the tool that are
// shown two of them.
type keeper struct {
	*installation.Installation

	lock  sync.Mutex
	shown map[string]bool // Authorization headers
}

// keep plants the canaries, and serves the model and the tool for as long as the test runs.
func keep(t *testing.T, i *installation.Installation) *keeper {
	t.Helper()
	k := &keeper{Installation: i, shown: map[string]bool{}}
	certificate, authority := served(t)
	k.serve(t, keptPort, nil, gate.HTTP(i.Gate.Folder))
	k.serve(t, keptModel, certificate, demomodel.New())

	for _, secret := range []map[string]any{
		opaque("model-keys", "kept"), opaque("tool-credentials", "kept"), opaque("blob-credentials", "credentials"),
	} {
		k.apply(t, secret)
	}
	aliases, err := json.Marshal(map[string]any{"aliases": map[string]any{
		"demo": map[string]any{"kind": "demo"},
		keptAgent: map[string]any{
			"base_url": fmt.Sprintf("https://%s:%d/v1", kube.Host, keptModel), "model": "demo", "key_file": "/etc/cofferdam/model-keys/kept",
			"ca_file": "/etc/cofferdam/aliases/kept.pem",
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	k.apply(t, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "aliases", "namespace": installation.System},
		"data": map[string]any{"aliases.json": string(aliases), "kept.pem": string(authority)},
	})
	for service, port := range map[string]int{"modelproxy": keptModel, "toolbroker": keptPort} {
		k.apply(t, map[string]any{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
			"metadata": map[string]any{"name": "tests-kept-" + service, "namespace": installation.System, "labels": map[string]any{"app.kubernetes.io/part-of": "tests"}},
			"spec": map[string]any{
				"podSelector": map[string]any{"matchLabels": map[string]any{"app.kubernetes.io/name": service}}, "policyTypes": []string{"Egress"},
				"egress": []any{map[string]any{"to": []any{map[string]any{"ipBlock": map[string]any{"cidr": kube.Host + "/32"}}}, "ports": []any{map[string]any{"port": port}}}},
			},
		})
	}
	// Aliases are read at the start. The Secrets would be there some time after.
	k.Kubectl(t, nil, "-n", installation.System, "rollout", "restart", "deployment/modelproxy", "deployment/toolbroker")
	k.Serves(t, "modelproxy")
	k.Serves(t, "toolbroker")
	return k
}

func opaque(name, key string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": installation.System},
		"stringData": map[string]any{key: "canary-" + rand.Text()},
	}
}

func (k *keeper) apply(t *testing.T, object map[string]any) {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	k.Kubectl(t, raw, "apply", "--server-side", "--force-conflicts", "-f", "-")
}

// serve listens on the machine and remembers what it is shown.
func (k *keeper) serve(t *testing.T, port int, certificate *tls.Certificate, handler http.Handler) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("%s:%d", kube.Host, port))
	if err != nil {
		t.Fatal(err)
	}
	if certificate != nil {
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12})
	}
	server := &http.Server{ReadHeaderTimeout: kube.Patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.lock.Lock()
		k.shown[r.Header.Get("Authorization")] = true
		k.lock.Unlock()
		handler.ServeHTTP(w, r)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// wereShown sees that the model and the tool were shown their credentials, so that these were in use.
func (k *keeper) wereShown(t *testing.T) {
	t.Helper()
	keys := k.credentials(t)
	k.lock.Lock()
	defer k.lock.Unlock()
	for _, name := range []string{"model-keys/kept", "tool-credentials/kept"} {
		if !k.shown["Bearer "+keys[name]] {
			t.Errorf("nobody was shown %s", name)
		}
	}
}

// served is a certificate for the machine, and the authority that signed it.
func served(t *testing.T) (certificate *tls.Certificate, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(kube.Host)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}
