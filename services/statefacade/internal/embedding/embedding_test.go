package embedding_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/statefacade/internal/embedding"
	"cofferdam.dev/services/statefacade/internal/memory/vector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "canary-of-a-text"

// client asks a model proxy that answers as f does.
func client(t *testing.T, f http.HandlerFunc) *embedding.Client {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	c := embedding.New(srv.Client(), srv.URL, vector.Space{Model: "embed", Dimension: 2})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEmbed(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		data, _ := io.ReadAll(r.Body)
		if json.Unmarshal(data, &body) != nil || fmt.Sprint(body) != "map[encoding_format:float input:[a b] model:embed]" || r.URL.Path != "/v1/embeddings" {
			t.Errorf("%s was asked %s", r.URL.Path, data)
		}
		_, _ = io.WriteString(w, `{"data":[{"index":1,"embedding":[0,2]},{"index":0,"embedding":[5,0]}]}`)
	})
	got, err := c.Embed(t.Context(), []string{"a", "b"})
	if err != nil || fmt.Sprint(got) != "[[1 0] [0 1]]" {
		t.Errorf("got %v, %v", got, err)
	}
	if c.Space().String() != "embed/2" {
		t.Errorf("the space is %s", c.Space())
	}
}

// Whatever is answered instead of embeddings is a fault of its own, and says
// nothing of what was sent or answered.
func TestNoEmbeddings(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		header string
		body   string
		want   fault.Code
	}{
		"away":                     {http.StatusServiceUnavailable, "model_unavailable", canary, fault.ModelUnavailable},
		"refused at the door":      {http.StatusForbidden, "", canary, fault.ModelUnavailable},
		"a code of nobody":         {http.StatusTeapot, "teapot", canary, fault.ModelUnavailable},
		"the text is not taken":    {http.StatusBadGateway, "model_failed", canary, fault.ModelFailed},
		"busy":                     {http.StatusTooManyRequests, "rate_limited", canary, fault.RateLimited},
		"no JSON":                  {http.StatusOK, "", canary, fault.ModelFailed},
		"too few":                  {http.StatusOK, "", `{"data":[]}`, fault.ModelFailed},
		"too many":                 {http.StatusOK, "", `{"data":[{"index":0,"embedding":[1,1]},{"index":1,"embedding":[1,1]}]}`, fault.ModelFailed},
		"of another text":          {http.StatusOK, "", `{"data":[{"index":1,"embedding":[1,1]}]}`, fault.ModelFailed},
		"of no text":               {http.StatusOK, "", `{"data":[{"embedding":[1,1]}]}`, fault.ModelFailed},
		"points nowhere":           {http.StatusOK, "", `{"data":[{"index":0,"embedding":[0,0]}]}`, fault.ModelFailed},
		"another model is behind":  {http.StatusOK, "", `{"data":[{"index":0,"embedding":[1,1,1]}]}`, fault.ModelUnavailable},
		"more than can be in them": {http.StatusOK, "", strings.Repeat(" ", 1<<17), fault.ModelFailed},
	} {
		t.Run(name, func(t *testing.T) {
			c := client(t, func(w http.ResponseWriter, _ *http.Request) {
				if tc.header != "" {
					w.Header().Set("Cofferdam-Fault", tc.header)
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			got, err := c.Embed(t.Context(), []string{canary})
			if fault.CodeOf(err) != tc.want || got != nil {
				t.Errorf("got %v, %v, want %s", got, err, tc.want)
			}
			if strings.Contains(fmt.Sprint(err), canary) {
				t.Errorf("the error repeats what was said: %v", err)
			}
		})
	}
}

func TestNobodyAnswers(t *testing.T) {
	c := client(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := c.Embed(t.Context(), []string{canary}); fault.CodeOf(err) != fault.ModelUnavailable || strings.Contains(err.Error(), canary) {
		t.Errorf("got %v", err)
	}
	slow := client(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := slow.Embed(ctx, []string{canary}); fault.CodeOf(err) != fault.ModelUnavailable {
		t.Errorf("got %v", err)
	}
}
