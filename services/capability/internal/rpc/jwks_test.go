package rpc_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
	capabilitysvc "cofferdam.dev/services/capability"
)

func idOf(t *testing.T, s string) spiffeid.ID {
	t.Helper()
	id, err := spiffeid.FromString(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// noCertificate trusts whatever the server shows and shows nothing itself.
func noCertificate(t *testing.T, _ *world) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}} //nolint:gosec // the server's own check is what is tested
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func plainTransport(t *testing.T) *http.Transport {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// serve calls the handler as a listener without TLS would.
func serve(t *testing.T, w *world, method, path string, body []byte) (int, fault.Code) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	(*w.handler.Load()).ServeHTTP(rec, r)
	return rec.Code, codeOf(t, rec.Body.Bytes())
}

// The table of GET /.well-known/jwks.json. Rows about tokens, envelope and
// generation do not apply: the keys are the same for everybody who may see them,
// and reading them changes nothing.
func TestJWKS(t *testing.T) {
	w := newWorld(t)
	td := w.domain.TrustDomain()
	stranger := identitytest.NewDomain(t, "other.test")
	for name, row := range map[string]struct {
		src    identity.Source
		method string
		want   int // 0: the handshake fails
	}{
		"the control plane":                    {w.controlPlane(t), http.MethodGet, http.StatusOK},
		"the tool broker":                      {w.domain.Source(t, identity.Service(td, "toolbroker")), http.MethodGet, http.StatusOK},
		"the state facade":                     {w.domain.Source(t, identity.Service(td, "statefacade")), http.MethodGet, http.StatusOK},
		"the file broker":                      {w.domain.Source(t, identity.Service(td, "filebroker")), http.MethodGet, http.StatusOK},
		"the model proxy":                      {w.domain.Source(t, identity.Service(td, "modelproxy")), http.MethodGet, http.StatusOK},
		"a sandbox":                            {w.domain.Source(t, w.domain.Sandbox("any")), http.MethodGet, http.StatusOK},
		"wrong identity: an unlisted service":  {w.domain.Source(t, identity.Service(td, "other")), http.MethodGet, 0},
		"wrong identity: another trust domain": {stranger.Source(t, stranger.Service("toolbroker")), http.MethodGet, 0},
		"wrong identity: another's sandbox":    {stranger.Source(t, stranger.Sandbox("any")), http.MethodGet, 0},
		"wrong identity: expired":              {w.domain.Expired(t, identity.Service(td, "toolbroker")), http.MethodGet, 0},
		"wrong method":                         {w.controlPlane(t), http.MethodPost, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), row.method, w.url(capability.JWKSPath), nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := w.http(t, row.src).Do(req)
			if row.want == 0 {
				if err == nil {
					_ = res.Body.Close()
					t.Fatalf("answer is %d, want no connection", res.StatusCode)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != row.want {
				t.Fatalf("answer is %d %s, error %v, want %d", res.StatusCode, body, err, row.want)
			}
			if row.want != http.StatusOK {
				return
			}
			if set, err := capability.ParseKeySet(body); err != nil || set.Len() != 1 || bytes.Contains(body, []byte(`"d"`)) {
				t.Errorf("%s: %v", body, err)
			}
			if got := res.Header.Get("Content-Type"); got != "application/jwk-set+json" {
				t.Errorf("Content-Type = %q", got)
			}
		})
	}
}

func TestTheListOfKeyReadersCanBeNarrowed(t *testing.T) {
	w := newWorld(t)
	w.cfg.JWKSCallers = w.domain.Service("toolbroker").String()
	w.start(t)
	for name, want := range map[string]int{"toolbroker": http.StatusOK, "controlplane": http.StatusOK, "filebroker": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url(capability.JWKSPath), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.http(t, w.domain.Source(t, w.domain.Service(name))).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, want)
		}
	}
}

// receiver verifies as a service does: with the keys that it reads over mutual
// TLS as itself.
func (w *world) receiver(t *testing.T, name string) *capability.Verifier {
	t.Helper()
	keys := capability.NewRemoteKeys(w.http(t, w.domain.Source(t, w.domain.Service(name))), w.url(capability.JWKSPath), capability.WithRefetchAfter(time.Nanosecond))
	t.Cleanup(func() { closed(t, keys.Close) })
	v, err := capability.NewVerifier(capability.Config{Issuer: w.id.String(), Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *world) mintOne(t *testing.T) string {
	t.Helper()
	req := w.request()
	req.Scopes = []*capabilityv1.Scope{{Audience: "tool-broker", Tools: []string{"fs.read_text_file"}}}
	res, err := w.client(t, w.controlPlane(t)).Mint(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res.GetTokens()[0].GetToken()
}

func (w *world) verify(t *testing.T, v *capability.Verifier, token string) error {
	t.Helper()
	_, err := v.Verify(t.Context(), token, capability.ToolBroker, w.domain.Sandbox(instance))
	return err
}

// Replicas share their keys through the store: what one signs, receivers verify
// with what the other publishes, and none makes a key of its own.
func TestReplicasShareKeys(t *testing.T) {
	w := newWorld(t)
	early := w.receiver(t, "toolbroker")
	old := w.mintOne(t)
	if err := w.verify(t, early, old); err != nil {
		t.Fatal(err)
	}
	w.start(t) // a second one, which answers from now on
	late := w.receiver(t, "toolbroker")
	recent := w.mintOne(t)
	for name, v := range map[string]*capability.Verifier{"a receiver of the first": early, "a receiver of the second": late} {
		for _, token := range []string{old, recent} {
			if err := w.verify(t, v, token); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n := w.published(t); n != 1 {
		t.Errorf("%d keys are published", n)
	}
}

// A key that is due is published beside the one before it, which goes when what it
// signed has expired. When which of them signs is tried in package signingkey.
func TestRotationShowsInTheKeySet(t *testing.T) {
	w := newWorld(t)
	for _, at := range []struct {
		ahead time.Duration
		want  int
	}{
		{0, 1},
		{w.cfg.KeyRotation - 3*time.Minute, 2},
		{w.cfg.KeyRotation + 23*time.Hour, 2},
		{w.cfg.KeyRotation + 30*time.Hour, 1},
	} {
		w.now = func() time.Time { return time.Now().Add(at.ahead) }
		w.start(t)
		if n := w.published(t); n != at.want {
			t.Errorf("after %v %d keys are published, want %d", at.ahead, n, at.want)
		}
	}
}

// published is how many keys the service tells of.
func (w *world) published(t *testing.T) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url(capability.JWKSPath), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.http(t, w.controlPlane(t)).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	set, err := capability.ParseKeySet(body)
	if err != nil {
		t.Fatalf("%d %s: %v", res.StatusCode, body, err)
	}
	return set.Len()
}

func TestNothingSecretIsLogged(t *testing.T) {
	w := newWorld(t)
	data, err := os.ReadFile(w.cfg.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Keys []struct {
			K string `json:"k"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(data, &doc); err != nil || len(doc.Keys) != 1 || len(doc.Keys[0].K) < 40 {
		t.Fatalf("key file: %v", err)
	}
	canaries := []string{doc.Keys[0].K, "user-canary", bindingID, runID, owner}
	client := w.client(t, w.controlPlane(t))
	res, err := client.Mint(t.Context(), w.request())
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range res.GetTokens() {
		canaries = append(canaries, strings.Split(tok.GetToken(), ".")[1:]...)
	}
	bad := w.request()
	bad.Scopes[1].Tools = []string{"canary.*"}
	bad.Envelope.LeaseGeneration = 7
	_, _ = client.Mint(t.Context(), bad) // refusals are logged as well
	w.cfg.KeyFile = filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(w.cfg.KeyFile, append(data, "x"...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = capabilitysvc.New(t.Context(), w.cfg, capabilitysvc.Deps{Logger: w.logger, Telemetry: w.tel})
	if err == nil {
		t.Fatal("took a broken key file")
	}
	seen := w.log.String() + err.Error()
	for _, c := range canaries {
		if strings.Contains(seen, c) {
			t.Errorf("%.12s… is in the log or an error", c)
		}
	}
	if w.minted() == 0 {
		t.Error("nothing was logged: the test looks at nothing")
	}
}
