package service

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

// enough are the flags without which no service starts.
var enough = []string{"--listen", "127.0.0.1:0", "--trust-domain", "cofferdam.test", "--workload-api", "unix:///run/workload.sock"}

func TestFlagThenVariableThenDefault(t *testing.T) {
	for name, c := range map[string]struct {
		args, environ []string
		name          string
		count         int
		drain         time.Duration
	}{
		"nothing":              {nil, nil, "default", 1, 10 * time.Second},
		"variables":            {nil, []string{"COFFERDAM_SOME_NAME=v", "COFFERDAM_COUNT=2", "COFFERDAM_DRAIN_TIMEOUT=3s"}, "v", 2, 3 * time.Second},
		"flags":                {[]string{"--some-name=f", "--count=3"}, nil, "f", 3, 10 * time.Second},
		"both":                 {[]string{"--some-name=f"}, []string{"COFFERDAM_SOME_NAME=v", "COFFERDAM_COUNT=2"}, "f", 2, 10 * time.Second},
		"a flag's empty value": {[]string{"--some-name="}, []string{"COFFERDAM_SOME_NAME=v"}, "", 1, 10 * time.Second},
		"an empty variable":    {nil, []string{"COFFERDAM_SOME_NAME="}, "", 1, 10 * time.Second},
		"a value with =":       {nil, []string{"COFFERDAM_SOME_NAME=a=b"}, "a=b", 1, 10 * time.Second},
		"others' variables":    {nil, []string{"SOME_NAME=x", "XCOFFERDAM_COUNT=9", "PATH=/bin", "COFFERDAM=1", "malformed"}, "default", 1, 10 * time.Second},
	} {
		cfg := &config{}
		if err := Parse("test", append(append([]string{}, enough...), c.args...), c.environ, cfg, io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if cfg.Name != c.name || cfg.Count != c.count || cfg.DrainTimeout != c.drain {
			t.Errorf("%s: %q, %d, %v", name, cfg.Name, cfg.Count, cfg.DrainTimeout)
		}
	}
}

// A setting that is misspelt must not be lost, wherever it stands.
func TestUnknownSettings(t *testing.T) {
	for name, c := range map[string]struct {
		args, environ []string
		want          string
	}{
		"variable":                  {nil, []string{"COFFERDAM_SOME_NAMES=v"}, "COFFERDAM_SOME_NAMES"},
		"variable of nothing":       {nil, []string{"COFFERDAM_=v"}, "COFFERDAM_"},
		"two variables":             {nil, []string{"COFFERDAM_B=1", "COFFERDAM_A=1"}, "COFFERDAM_A"},
		"variable that is no value": {nil, []string{"COFFERDAM_COUNT=many"}, "COFFERDAM_COUNT"},
		"flag":                      {[]string{"--some-names=v"}, nil, "some-names"},
		"argument":                  {[]string{"serve"}, nil, "serve"},
	} {
		err := Parse("test", append(append([]string{}, enough...), c.args...), c.environ, &config{}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateIsAsked(t *testing.T) {
	err := Parse("test", append(append([]string{}, enough...), "--some-name=wrong", "--log-level=loud"), nil, &config{}, io.Discard)
	if !errors.Is(err, errName) || !strings.Contains(err.Error(), "--log-level") {
		t.Errorf("not everything that is wrong: %v", err)
	}
}

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := Parse("test", []string{"-help"}, []string{"COFFERDAM_NONSENSE=1"}, &config{}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
	for _, part := range []string{"-listen", "-admin-listen", "-trust-domain", "-workload-api", "-some-name"} {
		if !strings.Contains(help.String(), part) {
			t.Errorf("-help does not say %s", part)
		}
	}
}

func TestBaseRefuses(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"listen", ""},
		{"listen", "nonsense"},
		{"listen", "unix://relative"},
		{"listen", "fd://2"},
		{"listen", "fd://x"},
		{"listen", "127.0.0.1:0,"},
		{"listen", "fd://3,nonsense"},
		{"admin-listen", "9090"},
		{"trust-domain", ""},
		{"trust-domain", "not a domain"},
		{"log-level", ""},
		{"log-level", "loud"},
		{"drain-timeout", "0s"},
		{"drain-timeout", "-1s"},
		{"drain-timeout", "6m"},
		{"otlp-endpoint", "collector:4318"},
		{"otlp-endpoint", "http://"},
		{"otlp-endpoint", "http://user:secret@collector:4318"},
		{"workload-api", "tcp://127.0.0.1:1"},
	} {
		err := Parse("test", append(append([]string{}, enough...), "--"+c.name, c.value), nil, &config{}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "-"+c.name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("--%s=%s: %v", c.name, c.value, err)
		}
	}
	for _, c := range []struct{ name, value string }{
		{"listen", ":0"},
		{"listen", "[::1]:443"},
		{"listen", "unix:///run/x.sock"},
		{"listen", "fd://3"},
		{"listen", "fd://3,unix:///run/x.sock,:0"},
		{"admin-listen", ""},
		{"drain-timeout", "5m"},
		{"otlp-endpoint", "https://collector.example:4318/v1/traces"},
	} {
		if err := Parse("test", append(append([]string{}, enough...), "--"+c.name, c.value), nil, &config{}, io.Discard); err != nil {
			t.Errorf("--%s=%s: %v", c.name, c.value, err)
		}
	}
}
