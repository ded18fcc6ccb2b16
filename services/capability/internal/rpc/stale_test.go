package rpc

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cofferdam.dev/pkg/capability"
)

// A replica that does not know the keys as they are now gives none: receivers keep
// what they have. What is wrong is for the log.
func TestNoKeySetIsGivenThatMayBeOld(t *testing.T) {
	var log bytes.Buffer
	h := jwks(func() ([]byte, error) { return []byte(`{"keys":[]}`), errors.New("the store is away") }, slog.New(slog.NewTextHandler(&log, nil)))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, capability.JWKSPath, nil))
	if rec.Code != http.StatusServiceUnavailable || strings.Contains(rec.Body.String(), "keys\"") || strings.Contains(rec.Body.String(), "store") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if !strings.Contains(log.String(), "the store is away") {
		t.Errorf("log: %s", &log)
	}
}
