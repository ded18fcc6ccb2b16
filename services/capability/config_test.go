package capability

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/service"
)

func parse(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	cfg := &Config{}
	all := append([]string{
		"--listen", "127.0.0.1:0", "--trust-domain", "cofferdam.test", "--workload-api", "unix:///run/spire.sock",
		"--store", "store.db", "--key-file", "keys.json",
	}, args...)
	return cfg, service.Parse("capability", all, nil, cfg, io.Discard)
}

func TestDefaults(t *testing.T) {
	cfg, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	a, err := cfg.access()
	if err != nil {
		t.Fatal(err)
	}
	if a.issuer != "spiffe://cofferdam.test/svc/capability" || cfg.MaxTTL != defaultMaxTTL || cfg.CreateKey {
		t.Errorf("issuer %q, max TTL %v, create key %v", a.issuer, cfg.MaxTTL, cfg.CreateKey)
	}
	for id, want := range map[string]struct{ mint, jwks bool }{
		"spiffe://cofferdam.test/svc/controlplane":   {true, true},
		"spiffe://cofferdam.test/svc/toolbroker":     {false, true},
		"spiffe://cofferdam.test/svc/statefacade":    {false, true},
		"spiffe://cofferdam.test/svc/filebroker":     {false, true},
		"spiffe://cofferdam.test/svc/modelproxy":     {false, true},
		"spiffe://cofferdam.test/sandbox/i-1":        {false, true},
		"spiffe://cofferdam.test/sandbox/i-1/x":      {},
		"spiffe://cofferdam.test/svc/other":          {},
		"spiffe://cofferdam.test/svc/controlplane/x": {},
		"spiffe://other.test/svc/controlplane":       {},
		"spiffe://other.test/sandbox/i-1":            {},
	} {
		got := [2]bool{a.mint.Check(spiffeid.RequireFromString(id)) == nil, a.jwks.Check(spiffeid.RequireFromString(id)) == nil}
		if got != [2]bool{want.mint, want.jwks} {
			t.Errorf("%s may mint, read keys: %v, want %v", id, got, want)
		}
	}
}

func TestOverrides(t *testing.T) {
	cfg, err := parse(t, "--controlplane", "spiffe://cofferdam.test/svc/cp2", "--issuer", "https://cap.example",
		"--jwks-callers", "spiffe://cofferdam.test/svc/a,spiffe://cofferdam.test/sandbox/*", "--max-ttl", "2m")
	if err != nil {
		t.Fatal(err)
	}
	a, err := cfg.access()
	if err != nil {
		t.Fatal(err)
	}
	want := identity.AllowList{identity.Exactly(spiffeid.RequireFromString("spiffe://cofferdam.test/svc/cp2"))}
	if !slices.Equal(a.mint, want) || a.issuer != "https://cap.example" {
		t.Errorf("mint = %v, issuer %q", a.mint, a.issuer)
	}
	if a.jwks.Check(spiffeid.RequireFromString("spiffe://cofferdam.test/svc/toolbroker")) == nil {
		t.Error("the list of key readers was added to the default, not put in its place")
	}
}

func TestConfigurationThatIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"no store":                           {[]string{"--store", ""}, "--store"},
		"a password in an address":           {[]string{"--store", "mongodb://user:" + "hush@host"}, "--store: leave the password out"},
		"no key file":                        {[]string{"--key-file", ""}, "--key-file"},
		"a life of nothing":                  {[]string{"--max-ttl", "0"}, "--max-ttl"},
		"a life of days":                     {[]string{"--max-ttl", "48h"}, "--max-ttl"},
		"keys of minutes":                    {[]string{"--key-rotation", "59m"}, "--key-rotation"},
		"an issuer with a blank":             {[]string{"--issuer", "a b"}, "--issuer"},
		"an issuer that is too long":         {[]string{"--issuer", strings.Repeat("x", maxIssuer+1)}, "--issuer"},
		"a control plane that is none":       {[]string{"--controlplane", "controlplane"}, "--controlplane"},
		"a trust domain as control plane":    {[]string{"--controlplane", "spiffe://cofferdam.test"}, "--controlplane"},
		"every sandbox as control plane":     {[]string{"--controlplane", "spiffe://cofferdam.test/sandbox/*"}, "--controlplane"},
		"a sandbox as control plane":         {[]string{"--controlplane", "spiffe://cofferdam.test/sandbox/i-1"}, "--controlplane"},
		"another trust domain's":             {[]string{"--controlplane", "spiffe://other.test/svc/controlplane"}, "--controlplane"},
		"a reader of keys that is no ID":     {[]string{"--jwks-callers", "toolbroker"}, "--jwks-callers"},
		"every service as a reader":          {[]string{"--jwks-callers", "spiffe://cofferdam.test/svc/*"}, "--jwks-callers"},
		"an empty entry among readers":       {[]string{"--jwks-callers", "spiffe://cofferdam.test/svc/a,"}, "--jwks-callers"},
		"a token endpoint without TLS":       {[]string{"--token-endpoints", "https://sts.example/token,http://sts.example/token"}, "--token-endpoints"},
		"a token endpoint that is no URL":    {[]string{"--token-endpoints", "sts.example"}, "--token-endpoints"},
		"an empty entry among endpoints":     {[]string{"--token-endpoints", "https://sts.example/token,"}, "--token-endpoints"},
		"an environment variable misspelled": {nil, "COFFERDAM_MAX_TLL"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, tc.args...)
			if tc.args == nil {
				err = service.Parse("capability", nil, []string{"COFFERDAM_MAX_TLL=1m"}, &Config{}, io.Discard)
			}
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error = %v, want one about %s", err, tc.says)
			}
		})
	}
}

// The flags are what operators write down, so a change shows in a file. Those of
// service.Base have their own test.
func TestHelp(t *testing.T) {
	base := flag.NewFlagSet("base", flag.ContinueOnError)
	(&service.Base{}).Flags(base)
	fs := flag.NewFlagSet("capability", flag.ContinueOnError)
	(&Config{}).Flags(fs)
	var got strings.Builder
	fs.VisitAll(func(f *flag.Flag) {
		if base.Lookup(f.Name) == nil {
			fmt.Fprintf(&got, "--%s (%s)\n\t%s\n", f.Name, f.DefValue, f.Usage)
		}
	})
	want, err := os.ReadFile("testdata/help.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("flags are now:\n%s\nwant:\n%s", got.String(), want)
	}
}
