package controlplane

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cofferdam.dev/pkg/service"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := service.Parse("controlplane", []string{"-help"}, nil, &Config{}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "help.golden")
	if *update {
		must(t, os.WriteFile(golden, help.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if help.String() != string(want) {
		t.Errorf("-help is\n%s\nand %s says\n%s", help.String(), golden, want)
	}
}

// right are the settings without which nothing starts.
func right() map[string]string {
	return map[string]string{
		"listen": "127.0.0.1:0", "trust-domain": "cofferdam.test", "workload-api": "unix:///run/workload.sock",
		"openfga-url": "http://127.0.0.1:2", "openfga-store-id": "01JABCDEFGHJKMNPQRSTVWXYZ0", "openfga-model-id": "01JABCDEFGHJKMNPQRSTVWXYZ1",
		"store": "records.db", "id-key-file": "ids.key", "agents": "agents.json",
		"public-listen": "127.0.0.1:0", "operator-listen": "127.0.0.1:0",
		"oidc-issuer": "https://issuer.example", "oidc-jwks": "jwks.json",
		"capability": "unix:///run/capability.sock", "toolbroker": "https://toolbroker.example:2", "filebroker": "https://[::1]:3", "registrar": "https://127.0.0.1:5",
		"launcher": "/usr/bin/sandbox", "worker": "/usr/bin/worker", "capability-issuer": "spiffe://cofferdam.test/svc/capability",
		"sandbox-sockets": "/run/cofferdam/svc", "sandbox-dir": "/run/cofferdam/w", "worker-logs": "logs",
	}
}

func parse(change map[string]string, environ ...string) (*Config, error) {
	all := right()
	maps.Copy(all, change)
	var args []string
	for name, value := range all {
		args = append(args, "--"+name+"="+value)
	}
	cfg := &Config{}
	return cfg, service.Parse("controlplane", args, environ, cfg, io.Discard)
}

func TestEveryRequiredSetting(t *testing.T) {
	if _, err := parse(nil); err != nil {
		t.Fatal(err)
	}
	for name := range right() {
		if _, err := parse(map[string]string{name: ""}); err == nil || !strings.Contains(err.Error(), "-"+name) {
			t.Errorf("without --%s: %v", name, err)
		}
	}
	for _, name := range []string{"environment", "replica", "oidc-audience", "sandbox", "oidc-algorithms"} { // those with a default
		if _, err := parse(map[string]string{name: ""}); err == nil || !strings.Contains(err.Error(), "--"+name) {
			t.Errorf("with an empty --%s: %v", name, err)
		}
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"store", "mongodb://user:" + "hush@host"},
		{"sandbox", "host"},
		{"sandbox-host", "https://127.0.0.1:9"},
		{"capability", "http://127.0.0.1:1"},
		{"capability", "127.0.0.1:1"},
		{"capability", "https://"},
		{"capability", "https://:1"},
		{"toolbroker", "https://user:pw@127.0.0.1:1"},
		{"toolbroker", "https://127.0.0.1:1/"},
		{"toolbroker", "https://127.0.0.1:1/path"},
		{"filebroker", "https://127.0.0.1:1?a=b"},
		{"filebroker", "https://127.0.0.1:1#a"},
		{"filebroker", "unix://run/x.sock"},
		{"registrar", "unix:///"},
		{"registrar", "unix:/run/x.sock"},
		{"sandbox", "kubernetes"},
		{"max-sandboxes", "0"},
		{"max-sandboxes", "-1"},
		{"max-sandboxes", "5000"},
		{"warm", "-1"},
		{"warm", "65"}, // more than may live
		{"oidc-jwks", "http://issuer.example/jwks"},
		{"oidc-jwks", "https:///jwks"},
		{"oidc-jwks", "https://user:pw@issuer.example/jwks"},
		{"oidc-algorithms", "none"},
		{"oidc-algorithms", "RS256,HS256"},
		{"oidc-algorithms", "RS256,"},
		{"take-over-after", "5s"}, // less than three beats
		{"take-over-after", "1h"},
		{"idle-after", "0"},
		{"idle-after", "-1m"},
		{"idle-after", "999ms"},
		{"keep-events", "23h"},
		{"keep-events", "-1h"},
		{"cancel-grace", "0"},
		{"cancel-grace", "2m"},
		{"drain-timeout", "0"},
	} {
		if _, err := parse(map[string]string{c.name: c.value}); err == nil || !strings.Contains(err.Error(), "--"+c.name) {
			t.Errorf("--%s=%s: %v", c.name, c.value, err)
		}
	}
	if _, err := parse(map[string]string{"warm": "1", "sandbox-profiles": "profiles.json"}); err == nil || !strings.Contains(err.Error(), "--warm") {
		t.Errorf("warm twice: %v", err)
	}
	if _, err := parse(map[string]string{"beat-every": "-1s"}); err == nil || !strings.Contains(err.Error(), "--beat-every") {
		t.Errorf("a negative beat: %v", err)
	}
	for _, value := range []string{"jwks.json", "/run/jwks.json", "https://issuer.example/jwks"} {
		if _, err := parse(map[string]string{"oidc-jwks": value}); err != nil {
			t.Errorf("--oidc-jwks=%s: %v", value, err)
		}
	}
}

func TestTheEnvironment(t *testing.T) {
	cfg, err := parse(nil, "COFFERDAM_MAX_SANDBOXES=7", "COFFERDAM_ENVIRONMENT=staging", "HOME=/root")
	if err != nil || cfg.MaxSandboxes != 7 || cfg.Environment != "staging" {
		t.Errorf("%+v, %v", cfg, err)
	}
	if _, err := parse(nil, "COFFERDAM_MAX_SANDBOX=7"); err == nil || !strings.Contains(err.Error(), "COFFERDAM_MAX_SANDBOX ") {
		t.Errorf("a misspelt variable: %v", err)
	}
}

func TestAlgorithms(t *testing.T) {
	cfg, err := parse(map[string]string{"oidc-algorithms": "RS256, EdDSA"})
	if got := cfg.algorithms(); err != nil || len(got) != 2 || got[0] != "RS256" || got[1] != "EdDSA" {
		t.Errorf("%v, %v", got, err)
	}
}

// A secret is never a setting: whatever is named like one is the path of a file.
func TestSecretsAreFiles(t *testing.T) {
	fs := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	new(Config).Flags(fs)
	secret := regexp.MustCompile(`key|secret|token|password|credential`)
	found := 0
	fs.VisitAll(func(f *flag.Flag) {
		if !secret.MatchString(f.Name) {
			return
		}
		found++
		if !strings.HasSuffix(f.Name, "-file") {
			t.Errorf("--%s takes a secret, and not a file", f.Name)
		}
	})
	if found < 2 {
		t.Errorf("%d settings look like secrets; this test has lost its eyes", found)
	}
}

// The key is a secret: a file of one owner, bounded, and never quoted.
func TestTheKeyOfTheIDs(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		must(t, os.Chmod(path, mode)) // whatever the umask is
		return path
	}
	key := strings.Repeat("canary-", 5)
	if ids, err := newIDs(file("right", key, 0o600)); err != nil || ids == nil {
		t.Errorf("%v, %v", ids, err)
	}
	for name, path := range map[string]string{
		"missing":     filepath.Join(dir, "none"),
		"a folder":    dir,
		"a device":    "/dev/zero",
		"too short":   file("short", key[:31], 0o600),
		"too long":    file("long", strings.Repeat(key, 200), 0o600),
		"for a group": file("group", key, 0o640),
		"for all":     file("all", key, 0o604),
	} {
		if _, err := newIDs(path); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
