package stdio

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/stdio/stdiotest"
)

func anyTime() time.Time { return time.Unix(1, 0) }

func TestParsePreset(t *testing.T) {
	t.Parallel()
	p, err := ParsePreset([]byte(`{"command":"python3","args":["-u","/opt/agent.py"],"env":{"B":"2","A":"1"},"startup_timeout":"5s",
		"files":[{"path":".config/x.json","content":"{}"}],"codec":{"name":"strands","version":3},"unsupported":{"stream.reasoning":"it has none"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if p.StartupTimeout != Duration(5*time.Second) || p.CancelGrace != Duration(defaultCancelGrace) || p.codec() != (harness.Codec{Name: "strands", Version: 3}) {
		t.Errorf("got %+v", p)
	}
	want := hosted.Command{Path: "python3", Args: []string{"-u", "/opt/agent.py"}, Env: []string{"A=1", "B=2"}}
	if got := p.command(); !reflect.DeepEqual(got, want) {
		t.Errorf("command %+v", got)
	}
	a, err := New(Config{World: stdiotest.NewWorld(t), Preset: p})
	if err != nil {
		t.Fatal(err)
	}
	if c := a.Descriptor().Capabilities["stream.reasoning"]; c.Level != harness.Unsupported || c.Reason != "it has none" {
		t.Errorf("capability %+v", c)
	}
	for text, part := range map[string]string{
		``:                                  "preset",
		`{}`:                                "command",
		`{"command":""}`:                    "command",
		`{"command":"./agent"}`:             "command",
		`{"command":"a","shell":true}`:      "shell",
		`{"command":"a","env":{"A=B":"1"}}`: "env",
		`{"command":"a","files":[{"path":"../x","content":""}]}`:        "files.0.path",
		`{"command":"a","files":[{"path":"/etc/x","content":""}]}`:      "files.0.path",
		`{"command":"a","files":[{"path":"a/../b","content":""}]}`:      "files.0.path",
		`{"command":"a","startup_timeout":"1h"}`:                        "startup_timeout",
		`{"command":"a","startup_timeout":"-1s"}`:                       "startup_timeout",
		`{"command":"a","startup_timeout":10}`:                          "startup_timeout",
		`{"command":"a","cancel_grace":"1m"}`:                           "cancel_grace",
		`{"command":"a","codec":{"name":"A","version":1}}`:              "codec",
		`{"command":"a","codec":{"name":"a","version":0}}`:              "codec",
		`{"command":"a","unsupported":{"stream.smell":"x"}}`:            "stream.smell",
		`{"command":"a","unsupported":{"stream.text":""}}`:              "stream.text",
		`{"command":"a","command":"b"}`:                                 "command",
		`{"command":"a","args":["` + strings.Repeat("x", 1<<20) + `"]}`: "preset",
	} {
		if _, err := ParsePreset([]byte(text)); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

func FuzzParsePreset(f *testing.F) {
	f.Add([]byte(`{"command":"python3","args":["-u"],"env":{"A":"1"},"files":[{"path":"a/b","content":"c"}],"startup_timeout":"5s","codec":{"name":"a","version":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParsePreset(text)
		if err != nil {
			return
		}
		if p.Command == "" || p.StartupTimeout <= 0 || p.CancelGrace <= 0 || p.Codec.Version == 0 {
			t.Fatalf("%q became %+v", text, p)
		}
		for _, file := range p.Files {
			if strings.Contains(file.Path, "..") && !strings.Contains(file.Path, "...") && strings.HasPrefix(file.Path, "..") {
				t.Fatalf("%q leads out of the home", file.Path)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"style":{"enum":["short","long"]}},"additionalProperties":false}`
	for name, c := range map[string]struct {
		schema, options string
		ok              bool
	}{
		"none":                      {"", "", true},
		"none, as an object":        {"", "{}", true},
		"where none are taken":      {"", `{"style":"short"}`, false},
		"right":                     {schema, `{"style":"short"}`, true},
		"wrong value":               {schema, `{"style":"odd"}`, false},
		"unknown":                   {schema, `{"colour":"red"}`, false},
		"no object":                 {schema, `[]`, false},
		"key twice":                 {schema, `{"style":"short","style":"long"}`, false},
		"keys of different case":    {`{}`, `{"style":"short","Style":"long"}`, false},
		"numbers are what they are": {`{"properties":{"n":{"type":"integer","maximum":9007199254740993}}}`, `{"n":9007199254740993}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := New(Config{World: stdiotest.NewWorld(t), Preset: Preset{Command: "x", OptionsSchema: []byte(c.schema), Codec: &PresetCodec{"a", 1}}})
			must(t, err)
			_, err = a.Initialize(t.Context(), harness.Construction{Options: []byte(c.options)})
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, bad := range []string{`{`, `{"type":"thing"}`, `{"$ref":"https://example.com/schema.json"}`, `{"$ref":"file:///etc/passwd"}`} {
		if _, err := New(Config{World: stdiotest.NewWorld(t), Preset: Preset{OptionsSchema: []byte(bad)}}); err == nil {
			t.Errorf("the schema %s was taken", bad)
		}
	}
}
