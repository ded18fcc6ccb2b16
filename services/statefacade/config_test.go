package statefacade

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/service"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := service.Parse("statefacade", []string{"-help"}, nil, &Config{}, &help); !errors.Is(err, flag.ErrHelp) {
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
		"-store", "bindings.db", "-state-store", "state.db", "-blob-url", "file:///snapshots", "-capability-url", "https://127.0.0.1:1",
		"-capability-id", "spiffe://example.org/svc/capability", "-issuer", "https://issuer.example",
	}
}

func TestConfig(t *testing.T) {
	must(t, service.Parse("statefacade", right(), nil, &Config{}, io.Discard))
	for _, name := range []string{"store", "state-store", "blob-url", "capability-url", "capability-id", "issuer"} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for i := 0; i < len(right()); i += 2 {
				if right()[i] != "-"+name {
					args = append(args, right()[i], right()[i+1])
				}
			}
			err := service.Parse("statefacade", args, nil, &Config{}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), "--"+name) {
				t.Errorf("without it: %v", err)
			}
		})
	}
}

// The vector rank is configured as a whole or not at all.
func TestEmbeddingFlags(t *testing.T) {
	whole := []string{
		"-embedding-url", "https://127.0.0.1:2", "-embedding-id", "spiffe://example.org/svc/modelproxy", "-embedding-alias", "embed", "-embedding-dimension", "256",
	}
	must(t, service.Parse("statefacade", append(right(), whole...), nil, &Config{}, io.Discard))
	for i := 0; i < len(whole); i += 2 {
		args := slices.Concat(right(), whole[:i], whole[i+2:])
		if err := service.Parse("statefacade", args, nil, &Config{}, io.Discard); err == nil || !strings.Contains(err.Error(), "-"+whole[i]) {
			t.Errorf("without %s: %v", whole[i], err)
		}
	}
	for _, dimension := range []string{"-1", "4097"} {
		args := slices.Concat(right(), whole[:6], []string{"-embedding-dimension", dimension})
		if err := service.Parse("statefacade", args, nil, &Config{}, io.Discard); err == nil || !strings.Contains(err.Error(), "--embedding-dimension") {
			t.Errorf("%s: %v", dimension, err)
		}
	}
}

// A password is in a file and not in an address, and no error repeats it.
func TestStoreTakesNoPassword(t *testing.T) {
	err := service.Parse("statefacade", append(right(), "-store", "mongodb://user:"+"hush"+"@host/database"), nil, &Config{}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--store: leave the password out") || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
	must(t, service.Parse("statefacade", append(right(), "-store", "mongodb://user@host/database", "-store-password-file", "password"), nil, &Config{}, io.Discard))
}
