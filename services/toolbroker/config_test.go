package toolbroker

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
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := service.Parse("toolbroker", []string{"-help"}, nil, &Config{}, &help); !errors.Is(err, flag.ErrHelp) {
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
		"-store", "bindings.db", "-catalogue", "catalogue.json", "-capability-url", "https://127.0.0.1:1",
		"-capability-id", "spiffe://example.org/svc/capability", "-issuer", "https://issuer.example",
		"-openfga-url", "http://127.0.0.1:2", "-openfga-store-id", "01JABCDEFGHJKMNPQRSTVWXYZ0", "-openfga-model-id", "01JABCDEFGHJKMNPQRSTVWXYZ1",
	}
}

func TestConfig(t *testing.T) {
	must(t, service.Parse("toolbroker", right(), nil, &Config{}, io.Discard))
	for _, name := range []string{
		"store", "catalogue", "capability-url", "capability-id", "issuer", "openfga-url", "openfga-store-id", "openfga-model-id",
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for i := 0; i < len(right()); i += 2 {
				if right()[i] != "-"+name {
					args = append(args, right()[i], right()[i+1])
				}
			}
			err := service.Parse("toolbroker", args, nil, &Config{}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), "--"+name) {
				t.Errorf("without it: %v", err)
			}
		})
	}
}

func TestNewSaysWhatIsWrongWithTheCatalogue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue.json")
	must(t, os.WriteFile(path, []byte(`{"servers":[{"namespace":"fs"}]}`), 0o600))
	_, err := New(t.Context(), &Config{Catalogue: path}, &service.Runtime{}, Deps{})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "/servers/0/") {
		t.Error(err)
	}
}

// A password is in a file and not in an address, and no error repeats it.
func TestStoreTakesNoPassword(t *testing.T) {
	err := service.Parse("toolbroker", append(right(), "-store", "mongodb://user:"+"hush"+"@host/database"), nil, &Config{}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--store: leave the password out") || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
	must(t, service.Parse("toolbroker", append(right(), "-store", "mongodb://user@host/database", "-store-password-file", "password"), nil, &Config{}, io.Discard))
}
