package process

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
)

// registrarAt serves h as a registrar over mutual TLS and gives a client that
// expects the service named want there.
func registrarAt(t *testing.T, want string, h http.HandlerFunc) *Registrar {
	t.Helper()
	domain := identitytest.New(t)
	client := domain.Source(t, domain.Service("controlplane"))
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = identity.ServerTLS(domain.Source(t, domain.Service("registrar")), identity.AllowList{identity.Exactly(client.ID())})
	s.StartTLS()
	t.Cleanup(s.Close)
	hc := identity.HTTPClient(client, domain.Service(want), identity.ClientOptions{})
	t.Cleanup(hc.CloseIdleConnections)
	return NewRegistrar(hc, s.URL+"/")
}

func TestRegistrar(t *testing.T) {
	var seen []string
	r := registrarAt(t, "registrar", func(w http.ResponseWriter, req *http.Request) {
		seen = append(seen, req.Method+" "+req.RequestURI)
		if req.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = fmt.Fprintln(w, `{"workload_api":"unix:///run/ABC.sock"}`)
	})
	api, err := r.Register(t.Context(), "ABC", 4711)
	if err != nil || api != "unix:///run/ABC.sock" {
		t.Errorf("register: %q, %v", api, err)
	}
	if err := r.Deregister(t.Context(), "../x"); err != nil { // a name is never a path
		t.Errorf("deregister: %v", err)
	}
	if got, want := strings.Join(seen, "; "), "PUT /v1/sandboxes/ABC?peer_uid=4711; DELETE /v1/sandboxes/..%2Fx"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestRegistrarAnswersThatAreRefused(t *testing.T) {
	full := httptest.NewRecorder()
	fault.WriteHTTP(full, fault.New(fault.SandboxCapacity, "test"))
	denied := httptest.NewRecorder()
	fault.WriteHTTP(denied, fault.New(fault.CallerNotAllowed, "test"))
	for name, c := range map[string]struct {
		status int
		body   string
		want   fault.Code
	}{
		"full":               {full.Code, full.Body.String(), fault.SandboxCapacity},
		"denied":             {denied.Code, denied.Body.String(), fault.DependencyUnavailable},
		"an error of others": {http.StatusBadGateway, "<html>", fault.DependencyUnavailable},
		"a redirect":         {http.StatusFound, "", fault.DependencyUnavailable},
		"no JSON":            {http.StatusOK, "unix:///run/x.sock", fault.DependencyUnavailable},
		"no address":         {http.StatusOK, `{}`, fault.DependencyUnavailable},
		"nothing":            {http.StatusNoContent, ``, fault.DependencyUnavailable},
		"an address on TCP":  {http.StatusOK, `{"workload_api":"tcp://192.0.2.1:1"}`, fault.DependencyUnavailable},
		"a relative path":    {http.StatusOK, `{"workload_api":"unix://run/x.sock"}`, fault.DependencyUnavailable},
		"too large":          {http.StatusOK, `{"workload_api":"unix:///run/x.sock"}` + strings.Repeat(" ", maxRegistrarAnswer), fault.DependencyUnavailable},
	} {
		r := registrarAt(t, "registrar", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		})
		if api, err := r.Register(t.Context(), "ABC", 4711); !fault.Is(err, c.want) || api != "" {
			t.Errorf("%s: %q, %v", name, api, err)
		}
		if c.status/100 != 2 {
			if err := r.Deregister(t.Context(), "ABC"); err == nil {
				t.Errorf("%s: deregistered", name)
			}
		}
	}
}

func TestAnotherServiceIsNoRegistrar(t *testing.T) {
	r := registrarAt(t, "capability", func(http.ResponseWriter, *http.Request) { t.Error("asked somebody else") })
	if _, err := r.Register(t.Context(), "ABC", 4711); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("register: %v", err)
	}
}

func TestADeafRegistrarHoldsNobodyUp(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan struct{})
	r := registrarAt(t, "registrar", func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		close(asked)
		<-req.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := r.Register(ctx, "ABC", 4711); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("register: %v", err)
	}
	<-gone
}
