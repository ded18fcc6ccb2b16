package signingkey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/capability"
)

// secret is the private part as it stands in the file: what must never be seen
// anywhere else.
func (k Key) secret() string { return base64.RawURLEncoding.EncodeToString(k.private().Seed()) }

func fresh(t *testing.T) Key {
	t.Helper()
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func jwk(k Key) jose.JSONWebKey { return jose.JSONWebKey{Key: k.private(), KeyID: k.id} }

func writeFile(t *testing.T, content []byte, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // past the umask
		t.Fatal(err)
	}
	return path
}

func fileOf(t *testing.T, keys ...jose.JSONWebKey) []byte {
	t.Helper()
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAKeyFileThatOthersMayUseIsRefused(t *testing.T) {
	content := fileOf(t, jwk(fresh(t)))
	for mode := fs.FileMode(0o400); mode <= 0o777; mode++ {
		_, err := Load(writeFile(t, content, mode))
		if allowed := mode&0o077 == 0; allowed != (err == nil) {
			t.Errorf("mode %04o: error = %v, want allowed = %v", mode, err, allowed)
		}
	}
}

func TestWhatIsNoKeyFileIsRefused(t *testing.T) {
	good := fresh(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mixed := newKey("mixed", append(append(ed25519.PrivateKey{}, good.private().Seed()...), fresh(t).private()[32:]...))
	many := make([]jose.JSONWebKey, capability.MaxKeys+1)
	for i := range many {
		many[i] = jose.JSONWebKey{Key: good.private(), KeyID: fmt.Sprint("k", i)}
	}
	for name, content := range map[string][]byte{
		"empty":              {},
		"not JSON":           []byte("-----BEGIN PRIVATE KEY-----"),
		"no keys":            fileOf(t),
		"a single JWK":       must(jwk(good).MarshalJSON()),
		"keys twice":         []byte(`{"keys":[],"keys":[]}`),
		"a public key":       fileOf(t, jose.JSONWebKey{Key: good.private().Public(), KeyID: "a"}),
		"an EC key":          fileOf(t, jose.JSONWebKey{Key: ec, KeyID: "a"}),
		"a shared secret":    fileOf(t, jose.JSONWebKey{Key: []byte("secret"), KeyID: "a"}),
		"no kid":             fileOf(t, jose.JSONWebKey{Key: good.private()}),
		"a kid with a blank": fileOf(t, jose.JSONWebKey{Key: good.private(), KeyID: "a b"}),
		"a kid twice":        fileOf(t, jwk(good), jose.JSONWebKey{Key: fresh(t).private(), KeyID: good.id}),
		"another use":        fileOf(t, jose.JSONWebKey{Key: good.private(), KeyID: "a", Use: "enc"}),
		"another algorithm":  fileOf(t, jose.JSONWebKey{Key: good.private(), KeyID: "a", Algorithm: "ES256"}),
		"x of another key":   fileOf(t, jwk(mixed)),
		"too many":           fileOf(t, many...),
		"a good and a bad":   fileOf(t, jwk(good), jose.JSONWebKey{Key: ec, KeyID: "a"}),
		"too large":          append(fileOf(t, jwk(good)), bytes.Repeat([]byte(" "), capability.MaxKeySetBytes)...),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(writeFile(t, content, 0o600))
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), good.secret()) || strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("the error quotes the file: %v", err)
			}
		})
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder was accepted")
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestAMissingFileIsMadeOnlyWhenAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	if _, err := Load(path); !errors.Is(err, ErrNoFile) || !strings.Contains(err.Error(), "--create-key") {
		t.Fatalf("error = %v, want ErrNoFile, and what to do", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("Load made a file")
	}
	first, err := LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, error %v, want 0600", info.Mode(), err)
	}
	again, err := LoadOrCreate(path)
	if err != nil || again.SignerID() != first.SignerID() {
		t.Errorf("the second start has another key: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
	if _, err := LoadOrCreate(filepath.Join(t.TempDir(), "no", "keys.json")); err == nil {
		t.Error("made a file in a folder that is not there")
	}
}

func TestAKeyFileThatIsBrokenIsNotReplaced(t *testing.T) {
	path := writeFile(t, []byte(`{"keys":[`), 0o600)
	if _, err := LoadOrCreate(path); err == nil {
		t.Fatal("accepted")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != `{"keys":[` {
		t.Errorf("file is %q now, error %v", got, err)
	}
}

func TestReplicasThatStartAtOnceShareOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	var wg sync.WaitGroup
	kids := make([]string, 16)
	for i := range kids {
		wg.Go(func() {
			ring, err := LoadOrCreate(path)
			if err != nil {
				t.Errorf("replica %d: %v", i, err)
				return
			}
			kids[i] = ring.SignerID()
		})
	}
	wg.Wait()
	for _, kid := range kids {
		if kid != kids[0] {
			t.Fatalf("kids = %q, want one", kids)
		}
	}
}

func TestTheFirstKeySignsAndAllArePublished(t *testing.T) {
	first, second := fresh(t), fresh(t)
	ring, err := Load(writeFile(t, fileOf(t, jwk(first), jwk(second)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if ring.SignerID() != first.id || ring.Len() != 2 {
		t.Errorf("signer %s of %d keys, want %s of 2", ring.SignerID(), ring.Len(), first.id)
	}
	set, err := capability.ParseKeySet(ring.JWKS())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []Key{first, second} {
		pub, err := set.Key(t.Context(), k.id)
		if err != nil || !pub.Equal(k.private().Public()) {
			t.Errorf("key %s is not published: %v", k.id, err)
		}
		if bytes.Contains(ring.JWKS(), []byte(k.secret())) {
			t.Errorf("the private part of %s is published", k.id)
		}
	}
	if bytes.Contains(ring.JWKS(), []byte(`"d"`)) {
		t.Error("a private member is published")
	}
	compact, err := ring.Sign([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signed.Verify(first.private().Public()); err != nil || signed.Signatures[0].Header.KeyID != first.id {
		t.Errorf("not signed by the first key: %v", err)
	}
}

func TestAKeyDoesNotShowItself(t *testing.T) {
	k := fresh(t)
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("key", "key", k, "keys", []Key{k}, "pointer", &k, "any", slog.AnyValue(k))
	ring, err := NewRing(k)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", k, []any{k, &k, struct{ K Key }{k}, struct{ k Key }{k}}, *ring)
	}
	b, err := json.Marshal(struct{ K any }{k})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	begin := k.private().Seed()[:8]
	for _, form := range []string{k.secret(), strings.Trim(fmt.Sprintf("%d", begin), "[]"), fmt.Sprintf("%x", begin)} {
		if strings.Contains(out.String(), form) {
			t.Errorf("a private part is in:\n%s", out.String())
		}
	}
	if !strings.Contains(out.String(), k.id) {
		t.Error("the kid is not shown: the test looks at nothing")
	}
}

// The key file has its own fuzz target: whatever it holds, nothing panics, and
// what is taken can sign.
func FuzzKeyFile(f *testing.F) {
	k, err := New()
	if err != nil {
		f.Fatal(err)
	}
	good, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{jwk(k)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","d":"AA","x":"AA","kid":"k"}]}`))
	path := filepath.Join(f.TempDir(), "keys.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		ring, err := Load(path)
		if err != nil {
			return
		}
		if _, err := ring.Sign([]byte(`{}`)); err != nil {
			t.Errorf("took a key that cannot sign: %v", err)
		}
	})
}
