package demomodel_test

import (
	"bytes"
	"compress/gzip"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/demomodel"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The bytes of every wire, streamed and whole. Who changes them changes what
// every client of the model reads.
func TestGoldens(t *testing.T) {
	t.Parallel()
	conversation := []turn{user1("Please:\n>>think hm\n>>say Hello there\n>>call demo.echo {\"text\":\"a b\"}\n>>bash ls\n>>usage 12 34")}
	for wire, s := range speakers() {
		for name, stream := range map[string]bool{"stream": true, "whole": false} {
			t.Run(wire+" "+name, func(t *testing.T) {
				t.Parallel()
				got := s.send(t, serve(t).URL, stream, s.body(stream, "You are an agent.", []string{"gw_demo_echo", "bash"}, conversation))
				media := map[bool]string{true: "text/event-stream", false: "application/json"}[stream]
				if got.status != http.StatusOK || got.header.Get("Content-Type") != media {
					t.Errorf("answered %d %s", got.status, got.header.Get("Content-Type"))
				}
				path := filepath.Join("testdata", "golden", wire+"-"+name+".txt")
				if *update {
					if err := os.WriteFile(path, []byte(got.body), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if got.body != string(want) {
					t.Errorf("answered\n%s\nwant\n%s", got.body, want)
				}
			})
		}
	}
}

func TestCompressedRequests(t *testing.T) {
	t.Parallel()
	deflated := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	request := body(t, false, user(">>say inflated"))
	tests := map[string]struct {
		encoding, body string
		status         int
	}{
		"gzip":      {"gzip", deflated(request), 200},
		"identity":  {"identity", request, 200},
		"no gzip":   {"gzip", request, 400},
		"cut":       {"gzip", deflated(request)[:40], 400},
		"bomb":      {"gzip", deflated(strings.Repeat(" ", 5<<20) + request), 413},
		"zstd":      {"zstd", request, 415},
		"br":        {"br", request, 415},
		"two of it": {"gzip, gzip", deflated(deflated(request)), 415},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := postTo(t, serve(t).URL+demomodel.Path, tt.body, "Content-Encoding", tt.encoding)
			if got.status != tt.status || (tt.status == 200) != strings.Contains(got.body, "inflated") {
				t.Errorf("answered %+v", got)
			}
		})
	}
}

func TestCountsTokens(t *testing.T) {
	t.Parallel()
	s := speakers()["messages"]
	for script, want := range map[string]string{"one two three": `{"input_tokens":7}`, ">>error 500": `{"input_tokens":6}`} {
		s.path = fixed(demomodel.PathCountTokens + "?beta=true")
		got := s.send(t, serve(t).URL, true, s.body(true, "You are an agent.", nil, []turn{user1(script)}))
		if got.status != http.StatusOK || got.body != want+"\n" {
			t.Errorf("%q: %+v", script, got)
		}
	}
}

func TestRoutesOfGemini(t *testing.T) {
	t.Parallel()
	request := `{"contents":[{"parts":[{"text":">>say x"}]}]}`
	for path, want := range map[string]int{
		"m:generateContent":               200,
		"gemini-2.5-pro:generateContent":  200,
		"m:streamGenerateContent?alt=sse": 200,
		"m:streamGenerateContent":         400,
		"m:countTokens":                   404,
		":generateContent":                404,
		"m":                               404,
		"a/b:generateContent":             404,
	} {
		if got := postTo(t, serve(t).URL+demomodel.PathGemini+path, request); got.status != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
}
