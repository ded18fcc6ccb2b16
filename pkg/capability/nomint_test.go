package capability_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// signers are the names that turn a package into one that can sign. A dot or
// renamed import does not help: what is looked for is the package, by its path.
var signers = map[string][]string{
	"crypto":                        {"Signer", "MessageSigner", "SignMessage"},
	"crypto/ed25519":                {"Sign", "PrivateKey", "NewKeyFromSeed", "GenerateKey"},
	"github.com/go-jose/go-jose/v4": {"NewSigner", "NewMultiSigner", "Signer", "SigningKey", "SignerOptions", "OpaqueSigner"},
}

// allowed are the packages that may be imported at all.
var allowed = []string{
	"context", "crypto/ed25519", "encoding/base64", "encoding/json", "errors", "fmt", "io", "log/slog", "net/http", "slices", "strings", "sync", "time",
	"github.com/go-jose/go-jose/v4", "github.com/spiffe/go-spiffe/v2/spiffeid",
	"cofferdam.dev/pkg/fault", "cofferdam.dev/pkg/fence", "cofferdam.dev/pkg/identity", "cofferdam.dev/pkg/strictjson",
}

// mints lists what in a file could sign, besides recognizing a private key in
// order to refuse it.
func mints(t *testing.T, name string, src any) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	paths := make(map[string]string)
	for _, imp := range file.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(allowed, path) || (imp.Name != nil && imp.Name.Name == ".") {
			found = append(found, name+" imports "+path)
		}
		local := strings.TrimSuffix(path, "/v4")
		local = local[strings.LastIndex(local, "/")+1:]
		switch {
		case imp.Name != nil:
			local = imp.Name.Name
		case local == "go-jose":
			local = "jose"
		}
		paths[local] = path
	}
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeAssertExpr: // k.(ed25519.PrivateKey) can only recognize one
			ast.Inspect(n.X, visit)
			return false
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && slices.Contains(signers[paths[pkg.Name]], n.Sel.Name) {
				found = append(found, name+" uses "+pkg.Name+"."+n.Sel.Name)
			}
		}
		return true
	}
	ast.Inspect(file, visit)
	return found
}

func TestThePackageCannotSign(t *testing.T) {
	sources, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		seen++
		for _, f := range mints(t, name, nil) {
			t.Errorf("%s: minting belongs to services/capability", f)
		}
	}
	if seen < 5 {
		t.Fatalf("looked at %d files: the test does not see the package", seen)
	}
}

func TestTheSearchForSignersFindsThem(t *testing.T) {
	for _, src := range []string{
		`package x; import "crypto/ed25519"; var f = ed25519.Sign`,
		`package x; import e "crypto/ed25519"; func F(k e.PrivateKey) {}`,
		`package x; import "github.com/go-jose/go-jose/v4"; var f = jose.NewSigner`,
		`package x; import . "crypto/ed25519"; var f = Sign`,
		`package x; import _ "cofferdam.dev/services/capability"`,
		`package x; import "crypto/hmac"; var f = hmac.New`,
	} {
		if len(mints(t, "src.go", src)) == 0 {
			t.Errorf("nothing found in %s", src)
		}
	}
}
