package facadeclient

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
)

// The transport adds the run's authority, and nothing that a library says about
// its machine leaves.
func TestModel(t *testing.T) {
	c := newClient(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Model.BaseURL+"chat/completions", strings.NewReader(`{"model":"main"}`))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer from-the-library")
	req.Header.Set("X-Stainless-Os", "Linux")
	req.Header.Set("Cookie", "a=b")
	res, err := c.Model.HTTP.Do(req)
	must(t, err)
	body, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	if res.StatusCode != http.StatusOK || string(body) != `{"model":"main"}` {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if req.Header.Get("Authorization") != "Bearer from-the-library" {
		t.Error("the caller's request was changed")
	}
	allowed := []string{"Accept", "Content-Type", "Authorization", "Cofferdam-Envelope", "Content-Length", "User-Agent", "Accept-Encoding"}
	for name := range c.model {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s: %s left the worker", name, c.model.Get(name))
		}
	}
	if c.Model.Alias != "main" {
		t.Errorf("alias %q", c.Model.Alias)
	}
}

func TestModelRefuses(t *testing.T) {
	c := newClient(t)
	body := &closing{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Model.BaseURL+"chat/completions", body)
	must(t, err)
	res, err := c.facades(t, c.endpoint("brokers"), nil).Model.HTTP.Do(req) //nolint:bodyclose // there is none
	if res != nil || !fault.Is(err, fault.CapabilityMissing) {
		t.Errorf("without a capability: %v", err)
	}
	if !body.closed {
		t.Error("the body was left open")
	}

	c.stand.Replace(t)
	req, err = http.NewRequestWithContext(t.Context(), http.MethodPost, c.Model.BaseURL+"chat/completions", strings.NewReader("{}"))
	must(t, err)
	res, err = c.Model.HTTP.Do(req)
	must(t, err)
	answer, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	if res.StatusCode != http.StatusConflict || !strings.Contains(string(answer), "stale_lease") || c.model != nil {
		t.Errorf("%d %s", res.StatusCode, answer)
	}
}

type closing struct {
	io.Reader

	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }
