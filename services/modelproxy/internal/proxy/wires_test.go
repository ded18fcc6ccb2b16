package proxy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/services/modelproxy/internal/proxy"
)

// What goes on of a request, and to where, on every wire.
func TestEveryWireSendsOnWhatItMay(t *testing.T) {
	t.Parallel()
	for name, g := range tongues() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan seen, 1)
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				s := seen{path: req.URL.RequestURI(), header: req.Header.Clone()}
				if err := json.NewDecoder(req.Body).Decode(&s.body); err != nil {
					t.Error(err)
				}
				got <- s
				g.wholly()(w, req)
			}, g.options())
			answer := r.postTo(t.Context(), t, g.path, g.ask,
				"Anthropic-Version", "2023-06-01", "Anthropic-Beta", "a-1, b-2", "X-Api-Key", "caller", "X-Goog-Api-Key", "caller", "Cookie", "a=b",
				"X-Stainless-Os", "Linux", "X-App", "cli", "User-Agent", "agent/1", "Cofferdam-Envelope", "ZW52", "Originator", "x", "Session-Id", "x")
			if answer.status != http.StatusOK || answer.err != nil || answer.body != g.stream() {
				t.Fatalf("got %+v, want %q", answer, g.stream())
			}
			s := <-got
			want := http.Header{
				"Accept": {"text/event-stream"}, "Content-Type": {"application/json"}, "User-Agent": {"cofferdam-modelproxy"}, g.key[0]: {g.key[1]},
			}
			if g.kind == proxy.KindAnthropic {
				want["Anthropic-Version"], want["Anthropic-Beta"] = []string{"2023-06-01"}, []string{"a-1,b-2"}
			}
			s.header.Del("Content-Length")
			if !reflect.DeepEqual(s.header, want) {
				t.Errorf("the upstream saw the header %v, want %v", s.header, want)
			}
			if s.path != g.upstream || g.kind != proxy.KindGemini && s.body["model"] != "large-1" || g.kind == proxy.KindGemini && s.body["model"] != nil {
				t.Errorf("the upstream saw %s %v", s.path, s.body)
			}
			r.clean(t, answer)
			names := slices.Sorted(maps.Keys(answer.header))
			names = slices.DeleteFunc(names, func(n string) bool { return n == "Date" })
			if want := []string{"Cache-Control", "Content-Type", "X-Content-Type-Options"}; !slices.Equal(names, want) || len(answer.trailer) > 0 {
				t.Errorf("header %v, trailer %v", names, answer.trailer)
			}
			r.logged(t, `"kind":"main"`)
			r.logged(t, `"input_tokens":3,"output_tokens":4`)

			whole := r.postTo(t.Context(), t, g.pathWhole, g.askWhole)
			<-got
			if whole.status != http.StatusOK || whole.body != g.whole || whole.err != nil {
				t.Errorf("whole: %+v", whole)
			}
		})
	}
}

// An agent that asks for another model gets the alias's, or the one that the
// alias has for such calls.
func TestTheBodyChoosesNoModel(t *testing.T) {
	t.Parallel()
	for name, g := range tongues() {
		for asked, want := range map[string]struct{ plain, withSide, kind string }{
			"main":         {"large-1", "large-1", "main"},
			"large-1":      {"large-1", "large-1", "main"},
			"gpt-4o":       {"large-1", "large-1", "main"}, // one of the names
			"gpt-5.6-luna": {"large-1", "small-1", "side"},
			"demo":         {"large-1", "small-1", "side"}, // another alias
		} {
			for _, side := range []string{"", "small-1"} {
				t.Run(name+" "+asked+" "+side, func(t *testing.T) {
					t.Parallel()
					o := g.options()
					o.side, o.names = side, []string{"gpt-4o"}
					got := make(chan string, 1)
					r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
						var body struct {
							Model string `json:"model"`
						}
						if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
							t.Error(err)
						}
						if g.kind == proxy.KindGemini {
							body.Model, _, _ = strings.Cut(strings.TrimPrefix(req.URL.Path, "/v1beta/models/"), ":")
						}
						got <- body.Model
						g.wholly()(w, req)
					}, o)
					answer := r.postTo(t.Context(), t, strings.Replace(g.path, "main", asked, 1), strings.Replace(g.ask, `"main"`, `"`+asked+`"`, 1))
					if answer.status != http.StatusOK || answer.err != nil {
						t.Fatalf("got %+v", answer)
					}
					model := want.plain
					if side != "" {
						model = want.withSide
					}
					if sent := <-got; sent != model {
						t.Errorf("the upstream was asked for %s, want %s", sent, model)
					}
					r.logged(t, `"kind":"`+want.kind+`"`)
				})
			}
		}
	}
}

func TestAliasSpeaksOnlyItsWires(t *testing.T) {
	t.Parallel()
	for name, g := range tongues() {
		for other, o := range tongues() {
			if name == other {
				continue
			}
			r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, g.options())
			o.told(t, r, r.postTo(t.Context(), t, o.path, o.ask), http.StatusNotFound, "not_found")
		}
	}
}

// The bodies of real agents (their words taken out) pass. One of them offers a
// tool of the endpoint, which an alias has to drop.
func TestBodiesOfAgents(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/agents/*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d bodies, %v", len(files), err)
	}
	for _, file := range files {
		agent := strings.TrimSuffix(filepath.Base(file), ".json")
		g := tongues()[map[string]string{"claude": "messages", "codex": "responses", "gemini": "gemini"}[strings.TrimSuffix(agent, "-side")]]
		if g.path == "" {
			g = tongues()["chat"]
		}
		for _, drop := range []bool{true, false} {
			t.Run(fmt.Sprint(agent, " drop ", drop), func(t *testing.T) {
				t.Parallel()
				body, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				o := g.options()
				o.drop = drop
				sent := make(chan string, 1)
				r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
					data, _ := io.ReadAll(req.Body)
					sent <- string(data)
					g.wholly()(w, req)
				}, o)
				got := r.postTo(t.Context(), t, g.path, string(body))
				if agent == "codex" && !drop {
					g.told(t, r, got, http.StatusBadRequest, "invalid_request")
					return
				}
				if got.status != http.StatusOK || got.err != nil {
					t.Fatalf("got %+v", got)
				}
				for _, gone := range []string{"web_search", "installation", "user_id"} {
					if data := <-sent; strings.Contains(data, gone) {
						t.Errorf("%s went on: %s", gone, data)
					} else {
						sent <- data
					}
				}
			})
		}
	}
}

func TestCompressedRequest(t *testing.T) {
	t.Parallel()
	deflated := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, text) // to memory
		_ = z.Close()
		return b.String()
	}
	for name, g := range tongues() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := g.options()
			o.limits = proxy.Limits{MaxRequest: 64 << 10}
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				if req.Header.Get("Content-Encoding") != "" {
					t.Error("sent on as compressed")
				}
				g.wholly()(w, req)
			}, o)
			send := func(body, encoding string) reply {
				return r.postTo(t.Context(), t, g.path, body, "Content-Encoding", encoding)
			}
			if got := send(deflated(g.ask), "gzip"); got.status != http.StatusOK {
				t.Errorf("gzip: %+v", got)
			}
			g.told(t, r, send(deflated(strings.Repeat(" ", 10<<20)+g.ask), "gzip"), http.StatusRequestEntityTooLarge, "request_too_large")
			g.told(t, r, send(deflated(g.ask)[:20], "gzip"), http.StatusBadRequest, "invalid_request")
			g.told(t, r, send(g.ask, "gzip"), http.StatusBadRequest, "invalid_request")
			for _, encoding := range []string{"zstd", "br", "deflate", "gzip, gzip"} {
				g.told(t, r, send(g.ask, encoding), http.StatusBadRequest, "invalid_request")
			}
		})
	}
}

func TestRefusedHeadersOfMessages(t *testing.T) {
	t.Parallel()
	g := tongues()["messages"]
	r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, g.options())
	for _, header := range [][]string{
		{"Anthropic-Version", "latest"},
		{"Anthropic-Version", "2023-06-01\tx"},
		{"Anthropic-Beta", "a b"},
		{"Anthropic-Beta", "A"},
		{"Anthropic-Beta", strings.Repeat("a,", 33)},
		{"Anthropic-Beta", strings.Repeat("a", 65)},
	} {
		g.told(t, r, r.postTo(t.Context(), t, g.path, g.ask, header...), http.StatusBadRequest, "invalid_request")
	}
}

func TestCountTokens(t *testing.T) {
	t.Parallel()
	g := tongues()["messages"]
	body := `{"model":"main","messages":[{"role":"user","content":"hi"}]}`
	for answer, want := range map[string]string{`{"input_tokens":12,"x":"` + textCanary + `"}`: `{"input_tokens":12}`, `{"input_tokens":-1}`: "", `{}`: "", `{"error":{}}`: ""} {
		r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
			if req.URL.RequestURI() != "/v1/messages/count_tokens?beta=true" {
				t.Errorf("the upstream saw %s", req.URL)
			}
			answerJSON(answer)(w, req)
		}, g.options())
		got := r.postTo(t.Context(), t, "/v1/messages/count_tokens?beta=true", body)
		if want == "" {
			g.told(t, r, got, http.StatusBadGateway, "model_failed")
		} else if got.status != http.StatusOK || got.body != want {
			t.Errorf("got %+v", got)
		}
		r.logged(t, `"kind":"count"`)
		r.clean(t, got)
	}
}

func TestListOfModelsIsTheAlias(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, options{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/v1/models", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil || len(list.Data) != 1 || list.Data[0].ID != "main" {
		t.Errorf("%d %+v %v", res.StatusCode, list, err)
	}
}

func TestQueryOfGemini(t *testing.T) {
	t.Parallel()
	g := tongues()["gemini"]
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.RequestURI() != g.upstream {
			t.Errorf("the upstream saw %s", req.URL)
		}
		g.wholly()(w, req)
	}, g.options())
	if got := r.postTo(t.Context(), t, g.path+"&key=caller&x=y", g.ask); got.status != http.StatusOK {
		t.Errorf("got %+v", got)
	}
	g.told(t, r, r.postTo(t.Context(), t, strings.TrimSuffix(g.path, "?alt=sse"), g.ask), http.StatusBadRequest, "invalid_request")
	for _, path := range []string{"main:countTokens", "main", ":generateContent", "a/b:generateContent", "../x:generateContent"} {
		if got := r.postTo(t.Context(), t, "/v1beta/models/"+path, g.ask); got.status != http.StatusNotFound {
			t.Errorf("%s: %+v", path, got)
		}
	}
}
