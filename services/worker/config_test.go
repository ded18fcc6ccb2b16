package worker_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/worker"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := service.Parse("worker", []string{"-help"}, nil, &worker.Config{}, &help); !errors.Is(err, flag.ErrHelp) {
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

func right() []string {
	return []string{
		"-listen", "127.0.0.1:0", "-trust-domain", "example.org", "-workload-api", "unix:///run/workload.sock",
		"-workspace", "/workspace", "-capability", "https://127.0.0.1:1", "-issuer", "https://issuer.example",
	}
}

func TestConfig(t *testing.T) {
	must(t, service.Parse("worker", right(), nil, &worker.Config{}, io.Discard))
	must(t, service.Parse("worker", append(right(), "-capability", "unix:///run/capability.sock"), nil, &worker.Config{}, io.Discard))
	hosted := append(right(), "-harness", "acp", "-runner", "unix:///run/runner.sock", "-harness-config", "/etc/agent.json")
	must(t, service.Parse("worker", hosted, nil, &worker.Config{}, io.Discard))
	wantError(t, service.Parse("worker", hosted[:len(hosted)-2], nil, &worker.Config{}, io.Discard), "--harness-config")
	for _, name := range []string{"workspace", "capability", "issuer"} {
		t.Run("without "+name, func(t *testing.T) {
			var args []string
			for i := 0; i < len(right()); i += 2 {
				if right()[i] != "-"+name {
					args = append(args, right()[i], right()[i+1])
				}
			}
			wantError(t, service.Parse("worker", args, nil, &worker.Config{}, io.Discard), "--"+name)
		})
	}
	must(t, service.Parse("worker", append(right(), "-image-digest", "sha256:"+strings.Repeat("0f", 32)), nil, &worker.Config{}, io.Discard))
	for _, bad := range [][2]string{
		{"image-digest", "sha256:0f"},
		{"image-digest", "latest"},
		{"workspace", "relative/folder"},
		{"capability", "http://127.0.0.1:1"},
		{"capability", "127.0.0.1:1"},
		{"capability", "unix://relative"},
		{"harness", ""},
		{"runner", "unix:///run/runner.sock"}, // native has none
		{"harness-config", "/etc/agent.json"},
		{"stop-timeout", "0"},
		{"unbound-timeout", "-1s"},
	} {
		t.Run(bad[0]+" "+bad[1], func(t *testing.T) {
			wantError(t, service.Parse("worker", append(right(), "-"+bad[0], bad[1]), nil, &worker.Config{}, io.Discard), "--"+bad[0])
		})
	}
}

// No setting takes a secret: what a worker may do comes with bind.
func TestNoSettingTakesASecret(t *testing.T) {
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	(&worker.Config{}).Flags(fs)
	fs.VisitAll(func(f *flag.Flag) {
		for _, word := range []string{"token", "secret", "password", "api-key"} {
			if strings.Contains(f.Name, word) {
				t.Errorf("-%s", f.Name)
			}
		}
	})
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("got %v, want an error with %q", err, part)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
