package openfgaauthz_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	store  = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	model  = "01ARZ3NDEKTSV4RRFFQ69G5FAW"
	canary = "canary-key-0123456789abcdef0123456789abcdef"
)

// server answers checks as f says.
func server(t *testing.T, f http.HandlerFunc) *openfgaauthz.Authorizer {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json") // the SDK takes no other
		f(w, r)
	}))
	t.Cleanup(s.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := openfgaauthz.New(openfgaauthz.Config{URL: s.URL, StoreID: store, ModelID: model, KeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func check(ctx context.Context, a *openfgaauthz.Authorizer) error {
	return a.Check(ctx, "user:1#x", authz.CanInvoke, authz.AgentID("demo"))
}

func TestACheckAsksForHigherConsistencyOfThePinnedModel(t *testing.T) {
	a := server(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer "+canary {
			t.Error("the key was not sent")
		}
		var body struct {
			TupleKey    struct{ User, Relation, Object string } `json:"tuple_key"`
			Model       string                                  `json:"authorization_model_id"`
			Consistency string                                  `json:"consistency"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if body.TupleKey.User != authz.UserID("user:1#x") || body.Model != model || body.Consistency != "HIGHER_CONSISTENCY" {
			t.Errorf("check = %+v", body)
		}
		_, _ = w.Write([]byte(`{"allowed":true}`))
	})
	if err := check(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsNotAllowedIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		code   fault.Code
	}{
		"denied":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"allowed":false}`)) }, fault.AccessDenied},
		"empty answer": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }, fault.AccessDenied},
		"not JSON":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`yes`)) }, fault.DependencyUnavailable},
		"broken": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"code":"internal_error"}`, http.StatusInternalServerError)
		}, fault.DependencyUnavailable},
		"wrong key": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"code":"unauthenticated"}`, http.StatusUnauthorized)
		}, fault.DependencyUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(t.Context(), server(t, tc.answer))
			if !fault.Is(err, tc.code) {
				t.Fatalf("err = %v, want %s", err, tc.code)
			}
			if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "user:1#x") {
				t.Errorf("the error tells the key or the subject: %v", err)
			}
		})
	}
}

func TestAServerThatIsAwayIsARefusal(t *testing.T) {
	a, err := openfgaauthz.New(openfgaauthz.Config{URL: "http://127.0.0.1:1", StoreID: store, ModelID: model})
	if err != nil {
		t.Fatal(err)
	}
	if err := check(t.Context(), a); !fault.Is(err, fault.DependencyUnavailable) {
		t.Errorf("err = %v, want dependency_unavailable", err)
	}
}

func TestTheKeyFollowsNoRedirect(t *testing.T) {
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Store(r.Header.Get("Authorization") != "")
		_, _ = w.Write([]byte(`{"allowed":true}`))
	}))
	defer other.Close()
	a := server(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	if err := check(t.Context(), a); err == nil {
		t.Error("a redirect was taken for an answer")
	}
	if leaked.Load() {
		t.Error("the key was sent to another host")
	}
}

func TestConfigAsksForWhatIsNeeded(t *testing.T) {
	var c openfgaauthz.Config
	err := c.Validate()
	for _, flag := range []string{"openfga-url", "openfga-store-id", "openfga-model-id"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("Validate does not name --%s: %v", flag, err)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, filepath.Join(t.TempDir(), "missing")} {
		if _, err := openfgaauthz.New(openfgaauthz.Config{URL: "http://127.0.0.1:1", StoreID: store, ModelID: model, KeyFile: file}); err == nil {
			t.Errorf("key file %s is accepted", file)
		}
	}
}
