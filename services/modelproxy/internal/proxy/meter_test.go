package proxy_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cofferdam.dev/pkg/telemetry"
)

// What calls took is counted on every wire, those on the side too, and so are
// those that failed. Nothing that was said is in it.
func TestCallsAndTokensAreCounted(t *testing.T) {
	t.Parallel()
	for name, g := range tongues() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tel, err := telemetry.New(t.Context(), telemetry.Config{Service: "modelproxy", Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			o := g.options()
			o.meter = tel.MeterProvider.Meter("cofferdam")
			cut := false
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				if cut {
					events(g.part)(w, req)
					return
				}
				g.wholly()(w, req)
			}, o)
			_ = r.postTo(t.Context(), t, g.path, g.ask)
			_ = r.postTo(t.Context(), t, g.pathWhole, g.askWhole)
			_ = r.postTo(t.Context(), t, strings.Replace(g.path, "main", textCanary, 1), strings.Replace(g.ask, `"main"`, `"`+textCanary+`"`, 1))
			cut = true
			_ = r.postTo(t.Context(), t, g.path, g.ask)
			rec := httptest.NewRecorder()
			tel.Metrics.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
			wire := map[string]string{"chat": "openai_chat", "responses": "openai_responses", "messages": "anthropic_messages", "gemini": "gemini"}[name]
			for want, value := range map[string]string{
				`cofferdam_model_calls_total{kind="main",model_alias="main",otel_scope_name="cofferdam",outcome="ok",wire="` + wire + `"}`:           "2",
				`cofferdam_model_calls_total{kind="side",model_alias="main",otel_scope_name="cofferdam",outcome="ok",wire="` + wire + `"}`:           "1",
				`cofferdam_model_calls_total{kind="main",model_alias="main",otel_scope_name="cofferdam",outcome="model_failed",wire="` + wire + `"}`: "1",
				`cofferdam_model_tokens_total{direction="output",kind="side",model_alias="main",otel_scope_name="cofferdam",wire="` + wire + `"}`:    "4",
				`cofferdam_model_tokens_total{direction="input",kind="side",model_alias="main",otel_scope_name="cofferdam",wire="` + wire + `"}`:     "3",
			} {
				if got := valueOf(rec.Body.String(), want); got != value {
					t.Errorf("%s is %q, want %s", want, got, value)
				}
			}
			if strings.Contains(rec.Body.String(), textCanary) || strings.Contains(rec.Body.String(), "hello") {
				t.Error("what was said stands in the metrics")
			}
		})
	}
}

// valueOf is the value of a line, whatever further labels of the library's it has.
func valueOf(text, want string) string {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		name = strings.NewReplacer(`otel_scope_schema_url="",`, "", `otel_scope_version="",`, "").Replace(name + "}")
		if name == want {
			return value
		}
	}
	return ""
}
