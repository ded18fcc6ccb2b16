package identity_test

import (
	"flag"
	"io"
	"testing"
	"time"

	"cofferdam.dev/pkg/identity"
)

func TestConfigValidate(t *testing.T) {
	files := identity.Config{SVIDFile: "svid.pem", KeyFile: "key.pem", BundleFile: "bundle.pem"}
	with := func(c identity.Config, change func(*identity.Config)) identity.Config {
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		config identity.Config
		ok     bool
	}{
		"Workload API": {identity.Config{WorkloadAPI: "unix:///run/spire/agent.sock"}, true},
		"files":        {files, true},
		"an ID":        {with(files, func(c *identity.Config) { c.ID = identity.Service(td, "x") }), true},
		"poll":         {with(files, func(c *identity.Config) { c.Poll = time.Second }), true},

		"nothing":           {identity.Config{}, false},
		"both":              {with(files, func(c *identity.Config) { c.WorkloadAPI = "unix:///s" }), false},
		"no key":            {with(files, func(c *identity.Config) { c.KeyFile = "" }), false},
		"no bundle":         {with(files, func(c *identity.Config) { c.BundleFile = "" }), false},
		"poll too often":    {with(files, func(c *identity.Config) { c.Poll = time.Millisecond }), false},
		"poll too rare":     {with(files, func(c *identity.Config) { c.Poll = time.Hour }), false},
		"negative poll":     {with(files, func(c *identity.Config) { c.Poll = -time.Second }), false},
		"trust domain's ID": {with(files, func(c *identity.Config) { c.ID = td.ID() }), false},
		"TCP":               {identity.Config{WorkloadAPI: "tcp://127.0.0.1:8081"}, false},
		"relative path":     {identity.Config{WorkloadAPI: "unix:agent.sock"}, false},
		"a host":            {identity.Config{WorkloadAPI: "unix://run/agent.sock"}, false},
		"no path":           {identity.Config{WorkloadAPI: "unix://"}, false},
		"root":              {identity.Config{WorkloadAPI: "unix:///"}, false},
		"plain path":        {identity.Config{WorkloadAPI: "/run/agent.sock"}, false},
		"query":             {identity.Config{WorkloadAPI: "unix:///s?x=1"}, false},
		"not a URL":         {identity.Config{WorkloadAPI: "unix:///\x7f"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.config.Validate(); (err == nil) != tc.ok {
				t.Errorf("got %v, want valid %v", err, tc.ok)
			}
			if !tc.ok {
				if src, err := identity.Open(t.Context(), tc.config, nil); err == nil {
					_ = src.Close()
					t.Error("Open took it")
				}
			}
		})
	}
}

func TestRegisterFlags(t *testing.T) {
	var c identity.Config
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.RegisterFlags(fs)
	err := fs.Parse([]string{"-workload-api", "unix:///a", "-svid-file", "b", "-svid-key-file", "c", "-bundle-file", "d"})
	want := identity.Config{WorkloadAPI: "unix:///a", SVIDFile: "b", KeyFile: "c", BundleFile: "d"}
	if err != nil || c != want {
		t.Errorf("got %+v, %v", c, err)
	}
}
