package registrar

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"

	"cofferdam.dev/deploy/local/internal/workloadapi"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
	"cofferdam.dev/pkg/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a registrar behind mutual TLS, over a real Workload API.
type world struct {
	domain    *identitytest.Domain
	registrar *Registrar
	url       string
}

func start(t *testing.T, most int) world {
	t.Helper()
	domain := identitytest.New(t)
	td := domain.TrustDomain()
	api, err := workloadapi.New(workloadapi.Config{TrustDomain: td, Dir: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	r := New(Config{TrustDomain: td, API: api, Max: most, Logger: slog.New(slog.DiscardHandler)})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	src := domain.Source(t, identity.Service(td, Service))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		s := service.HTTPServer(r.Handler(), slog.New(slog.DiscardHandler))
		served <- service.ServeListener(ctx, s, tls.NewListener(l, identity.ServerTLS(src, r.Callers())), time.Second)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return world{domain, r, "https://" + l.Addr().String()}
}

// call sends a request as a service and gives status and body.
func (w world) call(t *testing.T, src identity.Source, method, path string) (int, string, error) {
	t.Helper()
	hc := identity.HTTPClient(src, w.domain.Service(Service), identity.ClientOptions{})
	defer hc.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := hc.Do(req)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), errors.Join(err, res.Body.Close())
}

func (w world) controlplane(t *testing.T) identity.Source {
	t.Helper()
	return w.domain.Source(t, w.domain.Service(Caller))
}

// peer names this user.
func peer() string { return fmt.Sprintf("?peer_uid=%d", os.Geteuid()) }

// register registers a sandbox and gives its Workload API.
func (w world) register(t *testing.T, uid string) string {
	t.Helper()
	status, body, err := w.call(t, w.controlplane(t), http.MethodPut, "/v1/sandboxes/"+uid+peer())
	if err != nil || status != http.StatusOK {
		t.Fatalf("PUT: %d %s %v", status, body, err)
	}
	var out struct {
		WorkloadAPI string `json:"workload_api"`
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatal(err)
	}
	return out.WorkloadAPI
}

// identityAt is who a process is that is given the address.
func identityAt(t *testing.T, api string) (spiffeid.ID, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	src, err := identity.Open(ctx, identity.Config{WorkloadAPI: api}, nil)
	if err != nil {
		return spiffeid.ID{}, err
	}
	return src.ID(), src.Close()
}

// answers tells whether anybody serves the address.
func answers(t *testing.T, api string) bool {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", strings.TrimPrefix(api, "unix://"))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func TestEachSandboxGetsItsOwnIdentity(t *testing.T) {
	w := start(t, 0)
	for _, uid := range []string{"AAA", "BBB"} {
		api := w.register(t, uid)
		if again := w.register(t, uid); again != api {
			t.Errorf("%s: %s and then %s", uid, api, again)
		}
		if id, err := identityAt(t, api); err != nil || id != w.domain.Sandbox(uid) {
			t.Errorf("%s became %v, %v", uid, id, err)
		}
	}
}

func TestAnIdentityEndsWithItsSandbox(t *testing.T) {
	w := start(t, 0)
	gone, stays := w.register(t, "gone"), w.register(t, "stays")
	for range 2 {
		if status, body, err := w.call(t, w.controlplane(t), http.MethodDelete, "/v1/sandboxes/gone"); err != nil || status != http.StatusNoContent {
			t.Fatalf("DELETE: %d %s %v", status, body, err)
		}
	}
	if answers(t, gone) {
		t.Error("the identity is still given out")
	}
	if _, err := identityAt(t, stays); err != nil {
		t.Error(err)
	}
	w.registrar.Reset()
	if answers(t, stays) {
		t.Error("the identity is still given out after Reset")
	}
	if _, err := identityAt(t, w.register(t, "stays")); err != nil {
		t.Errorf("after Reset: %v", err)
	}
}

func TestOnlyTheControlPlaneMayAsk(t *testing.T) {
	w := start(t, 0)
	stranger := identitytest.NewDomain(t, w.domain.TrustDomain().Name())
	callers := map[string]identity.Source{
		"another service":           w.domain.Source(t, w.domain.Service("toolbroker")),
		"a sandbox":                 w.domain.Source(t, w.domain.Sandbox("AAA")),
		"the registrar itself":      w.domain.Source(t, w.domain.Service(Service)),
		"an expired certificate":    w.domain.Expired(t, w.domain.Service(Caller)),
		"a certificate of its own":  w.domain.SelfSigned(t, w.domain.Service(Caller)),
		"another authority":         stranger.Source(t, stranger.Service(Caller)),
		"a name that only looks so": w.domain.Source(t, w.domain.Service("controlplane2")),
	}
	for name, src := range callers {
		if status, body, err := w.call(t, src, http.MethodPut, "/v1/sandboxes/AAA"+peer()); err == nil {
			t.Errorf("%s was answered: %d %s", name, status, body)
		}
	}
	if n := len(w.registrar.sockets); n != 0 {
		t.Errorf("%d sandboxes were registered", n)
	}
}

func TestTheHandlerAsksAgainWhoCalls(t *testing.T) {
	w := start(t, 0)
	for name, state := range map[string]*tls.ConnectionState{
		"no TLS":          nil,
		"another service": w.domain.PeerState(t, w.domain.Service("toolbroker")),
	} {
		for _, method := range []string{http.MethodPut, http.MethodDelete} {
			req := httptest.NewRequestWithContext(t.Context(), method, "/v1/sandboxes/AAA", nil)
			req.TLS = state
			rec := httptest.NewRecorder()
			w.registrar.Handler().ServeHTTP(rec, req)
			if rec.Code != http.StatusUnauthorized && rec.Code != http.StatusForbidden {
				t.Errorf("%s, %s: %d", name, method, rec.Code)
			}
		}
	}
	if n := len(w.registrar.sockets); n != 0 {
		t.Errorf("%d sandboxes were registered", n)
	}
}

func TestWhatIsNoSandbox(t *testing.T) {
	w := start(t, 0)
	for path, want := range map[string]int{
		"/v1/sandboxes/":                               http.StatusNotFound,
		"/v1/sandboxes/a/b":                            http.StatusNotFound,
		"/v1/sandboxes/%2e%2e":                         http.StatusBadRequest,
		"/v1/sandboxes/..%2Fsvc%2Fcontrolplane":        http.StatusBadRequest,
		"/v1/sandboxes/a%00":                           http.StatusBadRequest,
		"/v1/sandboxes/a%20b":                          http.StatusBadRequest,
		"/v1/sandboxes/%C3%A4":                         http.StatusBadRequest,
		"/v1/sandboxes/" + strings.Repeat("a", 129):    http.StatusBadRequest,
		"/v1/services/capability":                      http.StatusNotFound,
		"/v1/sandboxes/" + strings.Repeat("a", 128):    http.StatusOK,
		"/v1/sandboxes/ABCDEFGHIJKLMNOPQRSTUVWXYZ.2-7": http.StatusOK,
	} {
		status, body, err := w.call(t, w.controlplane(t), http.MethodPut, path+peer())
		if err != nil || status != want {
			t.Errorf("%s: %d %s %v, want %d", path, status, body, err, want)
		}
	}
}

// Whoever does not say who may ask is not taken for somebody who may.
func TestASandboxHasAUser(t *testing.T) {
	w := start(t, 0)
	for _, query := range []string{"", "?peer_uid=", "?peer_uid=-1", "?peer_uid=root", "?peer_uid=4294967295", "?peer_uid=1.5"} {
		status, body, err := w.call(t, w.controlplane(t), http.MethodPut, "/v1/sandboxes/AAA"+query)
		if err != nil || status != http.StatusBadRequest {
			t.Errorf("%q: %d %s %v", query, status, body, err)
		}
	}
	if n := len(w.registrar.sockets); n != 0 {
		t.Errorf("%d sandboxes were registered", n)
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	w := start(t, 0)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if status, _, err := w.call(t, w.controlplane(t), method, "/v1/sandboxes/AAA"); err != nil || status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d, %v", method, status, err)
		}
	}
}

func TestRegistrationsHaveABound(t *testing.T) {
	w := start(t, 2)
	w.register(t, "A")
	w.register(t, "B")
	status, body, err := w.call(t, w.controlplane(t), http.MethodPut, "/v1/sandboxes/C"+peer())
	if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(body, "sandbox_capacity") {
		t.Errorf("%d %s %v", status, body, err)
	}
	w.register(t, "A") // what is there is no new one
}
