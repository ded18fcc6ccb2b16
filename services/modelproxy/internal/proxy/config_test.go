package proxy_test

import (
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/services/modelproxy/internal/proxy"
)

// caFile writes the certificate of a test server as a bundle.
func caFile(t *testing.T, srv *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, path, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	return path
}

func TestConfigIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, bad := filepath.Join(dir, "key"), filepath.Join(dir, "bad")
	writeFile(t, key, keyCanary)
	writeFile(t, bad, keyCanary+" "+keyCanary)
	tests := map[string]struct {
		alias proxy.Alias
		want  string // part of the error; none where empty
	}{
		"https":                {proxy.Alias{BaseURL: "https://api.example.com/v1", KeyFile: key}, ""},
		"http to 127.0.0.1":    {proxy.Alias{BaseURL: "http://127.0.0.1:1/v1"}, ""},
		"http to ::1":          {proxy.Alias{Kind: proxy.KindOpenAI, BaseURL: "http://[::1]:1"}, ""},
		"http to localhost":    {proxy.Alias{BaseURL: "http://localhost:1"}, ""},
		"demo":                 {proxy.Alias{Kind: proxy.KindDemo}, ""},
		"http elsewhere":       {proxy.Alias{BaseURL: "http://api.example.com/v1"}, "must begin with https://"},
		"http to a neighbour":  {proxy.Alias{BaseURL: "http://10.0.0.1/v1"}, "must begin with https://"},
		"http like loopback":   {proxy.Alias{BaseURL: "http://127.0.0.1.example.com"}, "must begin with https://"},
		"http to 0.0.0.0":      {proxy.Alias{BaseURL: "http://0.0.0.0:1"}, "must begin with https://"},
		"file":                 {proxy.Alias{BaseURL: "file:///etc/passwd"}, "absolute URL"},
		"another scheme":       {proxy.Alias{BaseURL: "ftp://api.example.com"}, "must begin with https://"},
		"no host":              {proxy.Alias{BaseURL: "https://:443/v1"}, "absolute URL"},
		"no URL":               {proxy.Alias{}, "absolute URL"},
		"key in the user":      {proxy.Alias{BaseURL: "https://" + keyCanary + "@api.example.com"}, "key_file"},
		"key in the query":     {proxy.Alias{BaseURL: "https://api.example.com/v1?key=" + keyCanary}, "key_file"},
		"no such key file":     {proxy.Alias{BaseURL: "https://api.example.com", KeyFile: filepath.Join(dir, "none")}, "no such file"},
		"key file is a folder": {proxy.Alias{BaseURL: "https://api.example.com", KeyFile: dir}, "not a regular file"},
		"two keys":             {proxy.Alias{BaseURL: "https://api.example.com", KeyFile: bad}, "one key"},
		"no such CA file":      {proxy.Alias{BaseURL: "https://api.example.com", CAFile: filepath.Join(dir, "none")}, "ca_file"},
		"CA file is none":      {proxy.Alias{BaseURL: "https://api.example.com", CAFile: key}, "no PEM certificate"},
		"unknown kind":         {proxy.Alias{Kind: "magic"}, "kind must be"},
		"demo with a key":      {proxy.Alias{Kind: proxy.KindDemo, KeyFile: key}, "no other settings"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := proxy.New(proxy.Config{Aliases: map[string]proxy.Alias{"main": tt.alias}}, proxy.Deps{Logger: slog.New(slog.DiscardHandler), Demo: demomodel.New()})
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				p.Close()
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), `"main"`) {
				t.Fatalf("error %v, want one with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), keyCanary) {
				t.Errorf("the key stands in the error: %v", err)
			}
		})
	}
}

func TestConfigNeedsAliases(t *testing.T) {
	t.Parallel()
	if _, err := proxy.New(proxy.Config{}, proxy.Deps{}); err == nil {
		t.Error("a proxy without aliases")
	}
	if _, err := proxy.New(proxy.Config{Aliases: map[string]proxy.Alias{"": {BaseURL: "https://x.example"}}}, proxy.Deps{}); err == nil {
		t.Error("an alias without a name")
	}
	if _, err := proxy.New(proxy.Config{Aliases: map[string]proxy.Alias{"demo": {Kind: proxy.KindDemo}}}, proxy.Deps{}); err == nil {
		t.Error("a demo alias without a demo model")
	}
}

func TestEveryFaultOfAConfigIsNamed(t *testing.T) {
	t.Parallel()
	_, err := proxy.New(proxy.Config{Aliases: map[string]proxy.Alias{
		"one": {BaseURL: "http://x.example", KeyFile: filepath.Join(os.DevNull, "none")}, "two": {Kind: "magic"},
	}}, proxy.Deps{})
	for _, want := range []string{`"one"`, "https://", "key_file", `"two"`, "kind must be"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
