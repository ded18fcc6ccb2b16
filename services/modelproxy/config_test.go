package modelproxy_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/modelproxy"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := service.Parse("modelproxy", []string{"-help"}, nil, &modelproxy.Config{}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "help.golden")
	if *update {
		write(t, golden, help.String())
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
		"-store", "bindings.db", "-aliases", "aliases.json", "-capability-url", "https://127.0.0.1:1",
		"-capability-id", "spiffe://example.org/svc/capability", "-issuer", "https://issuer.example",
	}
}

func TestConfig(t *testing.T) {
	must(t, service.Parse("modelproxy", right(), nil, &modelproxy.Config{}, io.Discard))
	for _, name := range []string{"store", "aliases", "capability-url", "capability-id", "issuer"} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for i := 0; i < len(right()); i += 2 {
				if right()[i] != "-"+name {
					args = append(args, right()[i], right()[i+1])
				}
			}
			err := service.Parse("modelproxy", args, nil, &modelproxy.Config{}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), "--"+name) {
				t.Errorf("without it: %v", err)
			}
		})
	}
}

// A wrong file of aliases, or a wrong alias, is an error at the start, and what
// was opened before is closed again (TestMain would see what is left).
func TestAliasesFile(t *testing.T) {
	s := rpctest.NewStand(t)
	tests := map[string]struct{ file, want string }{
		"not JSON":       {`{`, "not valid JSON"},
		"unknown field":  {`{"aliases":{"main":{"base_url":"https://x.example","api_key":"` + keyCanary + `"}}}`, "unknown field"},
		"other case":     {`{"aliases":{"main":{"Base_URL":"https://x.example"}}}`, "unknown field"},
		"alias twice":    {`{"aliases":{"main":{"kind":"demo"},"main":{"kind":"demo"}}}`, "key given twice"},
		"no aliases":     {`{}`, "required field missing"},
		"empty":          {`{"aliases":{}}`, "at least one"},
		"wrong alias":    {`{"aliases":{"main":{"base_url":"http://x.example"}}}`, `"main"`},
		"larger than it": {`{"aliases":{"main":{"kind":"demo"}}}` + strings.Repeat(" ", 1<<20), "larger than allowed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "aliases.json")
			write(t, file, tt.file)
			_, err := modelproxy.New(t.Context(), &modelproxy.Config{Aliases: file, Store: s.StorePath, Issuer: "issuer"}, runtime(t, s), modelproxy.Deps{Keys: s.Minter.Keys()})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), keyCanary) {
				t.Error("the error repeats a value of the file")
			}
		})
	}
	if _, err := modelproxy.New(t.Context(), &modelproxy.Config{Aliases: "none.json"}, runtime(t, s), modelproxy.Deps{}); err == nil {
		t.Error("a file that is not there was read")
	}
}

// A password is in a file and not in an address, and no error repeats it.
func TestStoreTakesNoPassword(t *testing.T) {
	err := service.Parse("modelproxy", append(right(), "-store", "mongodb://user:"+"hush"+"@host/database"), nil, &modelproxy.Config{}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--store: leave the password out") || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
	must(t, service.Parse("modelproxy", append(right(), "-store", "mongodb://user@host/database", "-store-password-file", "password"), nil, &modelproxy.Config{}, io.Discard))
}
