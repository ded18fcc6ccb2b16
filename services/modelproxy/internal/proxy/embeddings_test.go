package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"cofferdam.dev/services/modelproxy/internal/proxy"
)

const embeddings = `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]}],"usage":{"prompt_tokens":3,"total_tokens":3}}`

// A request for embeddings names its alias as its model, and no text of it stays
// in the log.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	var sent, path, auth atomic.Value
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		data, _ := io.ReadAll(req.Body)
		sent.Store(string(data))
		path.Store(req.URL.Path)
		auth.Store(req.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, embeddings)
	}, options{wires: []proxy.Wire{proxy.OpenAIEmbeddings}, model: "embed-1", alias: "demo"})
	got := r.postTo(t.Context(), t, proxy.PathEmbeddings, `{"model":"main","input":["see https://example.org, `+textCanary+`"],"encoding_format":"float"}`)
	if got.status != http.StatusOK || got.err != nil || got.body != embeddings {
		t.Fatalf("got %+v", got)
	}
	if s := fmt.Sprint(sent.Load()); !strings.Contains(s, `"model":"embed-1"`) || !strings.Contains(s, textCanary) {
		t.Errorf("the endpoint was sent %s", s)
	}
	if path.Load() != "/v1/embeddings" || auth.Load() != "Bearer "+keyCanary {
		t.Errorf("the endpoint was asked at %s with %s", path.Load(), auth.Load())
	}
	if log := r.log.String(); strings.Contains(log, textCanary) || !strings.Contains(log, `"kind":"embedding"`) || !strings.Contains(log, `"input_tokens":3`) {
		t.Errorf("the log has %s", log)
	}
}

func TestEmbeddingsThatAreRefused(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, func(http.ResponseWriter, *http.Request) { calls.Add(1) }, options{})
	for name, tc := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"an alias without this wire": {`{"model":"main","input":"x"}`, http.StatusNotFound, "not_found"},
		"an alias that there is not": {`{"model":"other","input":"x"}`, http.StatusNotFound, "not_found"},
		"no alias":                   {`{"input":"x"}`, http.StatusNotFound, "not_found"},
		"no input":                   {`{"model":"demo"}`, http.StatusBadRequest, "invalid_request"},
		"an empty text":              {`{"model":"demo","input":["x",""]}`, http.StatusBadRequest, "invalid_request"},
		"tokens":                     {`{"model":"demo","input":[1,2]}`, http.StatusBadRequest, "invalid_request"},
		"too many":                   {`{"model":"demo","input":["` + strings.Repeat(`x","`, 128) + `x"]}`, http.StatusBadRequest, "invalid_request"},
		"another form":               {`{"model":"demo","input":"x","encoding_format":"base64"}`, http.StatusBadRequest, "invalid_request"},
		"an object as a form":        {`{"model":"demo","input":"x","encoding_format":{}}`, http.StatusBadRequest, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			r.fails(t, r.postTo(t.Context(), t, proxy.PathEmbeddings, tc.body), tc.status, tc.code)
		})
	}
	if calls.Load() != 0 {
		t.Errorf("the endpoint was asked %d times", calls.Load())
	}
}

// An answer that is none does not get through.
func TestEmbeddingsThatAreNone(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing":          `{"data":[]}`,
		"an error":         `{"error":{"message":"` + textCanary + `"}}`,
		"no index":         `{"data":[{"embedding":[1]}]}`,
		"an index twice":   `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`,
		"an index beyond":  `{"data":[{"index":1,"embedding":[1]}]}`,
		"no numbers":       `{"data":[{"index":0,"embedding":[]}]}`,
		"a text":           `{"data":[{"index":0,"embedding":"AAAA"}]}`,
		"several lengths":  `{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1,2]}]}`,
		"too many numbers": `{"data":[{"index":0,"embedding":[1` + strings.Repeat(",1", 4096) + `]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
			}, options{wires: []proxy.Wire{proxy.OpenAIEmbeddings}})
			r.fails(t, r.postTo(t.Context(), t, proxy.PathEmbeddings, `{"model":"main","input":"x"}`), http.StatusBadGateway, "model_failed")
		})
	}
}

func TestDemoModelEmbeds(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, options{base: "http://127.0.0.1:1"})
	if got := r.postTo(t.Context(), t, proxy.PathEmbeddings, `{"model":"demo","input":["a","b"]}`); got.status != http.StatusOK || strings.Count(got.body, `"embedding":[`) != 2 {
		t.Errorf("got %+v", got)
	}
}
