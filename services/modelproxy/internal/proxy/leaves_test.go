package proxy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// marker stands in every address.
const marker = "x.example"

// addresses are ways in which one can be written.
func addresses() []string {
	return []string{
		"https://x.example/?d", "http://x.example", "HTTPS:x.example", "ftp://x.example/d", "gs://x.example/d", "s3://x.example/d", "//x.example/?d",
		" \t//x.example", "\u00a0https:x.example",
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for _, s := range append(addresses(),
		"file://x.example/d", "ws://x.example", `\\x.example\d`, `/\x.example`, `https:\\x.example`, "https:/x.example", "hTTps:x.example", "\thttps://x.example",
		"\r\n //x.example", "ht\ntps:x.example", "/\t/x.example", "\ufeffhttps:x.example", "\x00https:x.example", "unheard-of://x.example", "see https://x.example",
	) {
		if !address(s) {
			t.Errorf("%q is taken for none", s)
		}
	}
	for _, s := range []string{"", "/", "main", "a/b", "/a//b", "call_1:2", "mcp:f", "data:,x", "text/plain", "C", "a: b", "http", "é"} {
		if address(s) {
			t.Errorf("%q is taken for one", s)
		}
	}
}

// each calls f with every text in v, its place, and a way to put another one there.
func each(v any, place string, put func(any), f func(place, text string, put func(any))) {
	switch v := v.(type) {
	case string:
		f(place, v, put)
	case []any:
		for i := range v {
			each(v[i], place, func(to any) { v[i] = to }, f)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			below := strings.TrimPrefix(place+"."+key, ".")
			if key == "data" && v["type"] == "text" { // an Anthropic document in plain text
				below += " text"
			}
			each(v[key], below, func(to any) { v[key] = to }, f)
		}
	}
}

// pass admits a body and gives what goes on.
func pass(t *testing.T, path, body string, a admission) (string, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	to, ok := routeOf(r)
	if !ok {
		t.Fatal("no route")
	}
	req, err := readRequest(httptest.NewRecorder(), r, to, Limits{}.withDefaults())
	if err == nil {
		err = req.admit(a)
	}
	if err != nil {
		return "", err
	}
	out, err := req.encode("upstream")
	if err != nil {
		t.Fatal(err)
	}
	return string(out), nil
}

// No address goes on in any place but those of what people, models and tools say,
// and there every one does.
func TestNoWayOutInAnyText(t *testing.T) {
	t.Parallel()
	for name, ask := range asks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := pass(t, ask.path, ask.body, admission{}); err != nil {
				t.Fatalf("the request itself: %v", err)
			}
			var doc any
			if err := json.Unmarshal([]byte(ask.body), &doc); err != nil {
				t.Fatal(err)
			}
			unmet := map[string]bool{}
			for _, f := range ask.free {
				unmet[f] = true
			}
			each(doc, "", nil, func(place, text string, put func(any)) {
				free := slices.Contains(ask.free, place)
				delete(unmet, place)
				for i, address := range addresses() {
					put(address)
					body, err := json.Marshal(doc)
					if err != nil {
						t.Fatal(err)
					}
					out, err := pass(t, ask.path, string(body), admission{drop: i == 0})
					if on := strings.Contains(out, marker); on != free || free && err != nil {
						t.Errorf("%q at %s goes on: %v, want %v; %v", address, place, on, free, err)
					}
				}
				put(text)
			})
			for place := range unmet {
				t.Errorf("the request has nothing at %s", place)
			}
		})
	}
}

// Where bytes are meant nothing but those is taken, whatever it could be the name of.
func TestBytesAreBytes(t *testing.T) {
	t.Parallel()
	for place, ask := range map[string][2]string{
		"sound":          {Path, `{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"mp3","data":%s}}]}]}`},
		"file":           {Path, `{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":%s}}]}]}`},
		"responses file": {pathResponses, `{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_data":%s}]}]}`},
		"image":          {pathMessages, `{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":%s}}]}]}`},
		"of an url":      {pathMessages, `{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","data":%s}}]}]}`},
		"gemini":         {pathGemini + "m:generateContent", `{"contents":[{"parts":[{"inlineData":{"data":%s}}]}]}`},
	} {
		for text, want := range map[string]bool{
			"": true, "AA==": true, "//uQxAAA": true, "a-_b": true, "AAAA\r\nAA==\n": true, "data:image/png;base64,AA==": true,
			"x.example/d": false, "x:d": false, "Data:,x": false, " data:,x": false, "AA AA": false, "blob?": false, "%2F%2Fx": false, "ｈttps": false,
		} {
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pass(t, ask[0], fmt.Sprintf(ask[1], quoted), admission{}); (err == nil) != want {
				t.Errorf("%s: %q: %v", place, text, err)
			}
		}
	}
}

// A schema refers to itself alone, wherever in it.
func TestSchemasStayHere(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]bool{
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`:                                                                                          true,
		`{"properties":{"u":{"type":"string","format":"uri","default":"https://x.example"}}}`:                                                                            true,
		`{"title":"https://x.example","$comment":"https://x.example","pattern":"^https://x.example","examples":["https://x.example"],"const":{"a":"https://x.example"}}`: true,
		`{"properties":{"$schema":{"description":"such as https://x.example"}}}`:                                                                                         true,
		`{"default":{"$schema":"http://json-schema.org/draft-07/schema#","u":"https://x.example"}}`:                                                                      true,
		`{"$schema":"https://x.example/schema"}`:                                                                                                                         false,
		`{"$schema":"http://json-schema.org/draft-07/schema#?d"}`:                                                                                                        false,
		`{"$id":"https://x.example/","$ref":"d"}`:                                                                                                                        false,
		`{"properties":{"default":{"$ref":"https://x.example"}}}`:                                                                                                        false,
		`{"properties":{"properties":{"properties":{"enum":{"$ref":"https://x.example"}}}}}`:                                                                             false,
		`{"allOf":[{"items":{"$dynamicRef":"//x.example"}}]}`:                                                                                                            false,
		`{"$ref":"#/default","default":{"$ref":"https://x.example"}}`:                                                                                                    false,
		`{"$ref":"#/enum/0","enum":[{"a":[{"$ref":"https://x.example"}]}]}`:                                                                                              false,
		`{"description":{"$ref":"https://x.example"}}`:                                                                                                                   false,
		`{"x-fetch":"https://x.example"}`:                                                                                                                                false,
		`{"properties":{"description":"https://x.example"}}`:                                                                                                             false,
		`{"type":["https://x.example"]}`:                                                                                                                                 false,
		`{"format":"https://x.example"}`:                                                                                                                                 false,
		`{"required":["https://x.example"]}`:                                                                                                                             false,
		`["https://x.example"]`:                                                                                                                                          false,
	} {
		body := `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","input_schema":` + schema + `}]}`
		if _, err := pass(t, pathMessages, body, admission{}); (err == nil) != want {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// A key with a point in it does not come to stand for two, and one in other letters
// not for another; what an alias allows beside is its own.
func TestPlacesAreExact(t *testing.T) {
	t.Parallel()
	say := func(f string) string {
		return `{"model":"m","messages":[{"role":"user","content":"x",` + f + `}]}`
	}
	for body, want := range map[string]bool{
		say(`"reasoning":"https://x.example"`):                     true,
		say(`"Reasoning":"https://x.example"`):                     false,
		say(`"content.text":"https://x.example"`):                  false,
		say(`"tool_calls.function.arguments":"https://x.example"`): false,
		say(`"refusal":{"url":"https://x.example"}`):               false,
	} {
		if _, err := pass(t, Path, body, admission{drop: true}); (err == nil) != want {
			t.Errorf("%s: %v", body, err)
		}
	}
	out, err := pass(t, Path, `{"model":"m","messages":[{"role":"user","content":"x"}],"metadata":{"a":"https://x.example"}}`, admission{further: set("metadata")})
	if err != nil || !strings.Contains(out, marker) {
		t.Errorf("a field that the alias allows: %s, %v", out, err)
	}
}
