package signingkey

import (
	"bytes"
	"crypto/ed25519"
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
)

// secretText is the key as it stands in the file: what must never be seen anywhere
// else.
func (k sealKey) secretText() string { return base64.RawURLEncoding.EncodeToString(k.secret()) }

func freshSealKey(t *testing.T) sealKey {
	t.Helper()
	k, err := generateSealKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

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
	content := fileOf(t, freshSealKey(t).jwk())
	for mode := fs.FileMode(0o400); mode <= 0o777; mode++ {
		_, err := Load(writeFile(t, content, mode))
		if allowed := mode&0o077 == 0; allowed != (err == nil) {
			t.Errorf("mode %04o: error = %v, want allowed = %v", mode, err, allowed)
		}
	}
}

func TestWhatIsNoKeyFileIsRefused(t *testing.T) {
	good := freshSealKey(t)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]jose.JSONWebKey, maxSealKeys+1)
	for i := range many {
		many[i] = jose.JSONWebKey{Key: good.secret(), KeyID: fmt.Sprint("k", i)}
	}
	single, err := good.jwk().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty":             {},
		"not JSON":          []byte("-----BEGIN PRIVATE KEY-----"),
		"no keys":           fileOf(t),
		"a single JWK":      single,
		"keys twice":        []byte(`{"keys":[],"keys":[]}`),
		"a signing key":     fileOf(t, jose.JSONWebKey{Key: private, KeyID: "a"}),
		"a short key":       fileOf(t, jose.JSONWebKey{Key: good.secret()[:16], KeyID: "a"}),
		"a long key":        fileOf(t, jose.JSONWebKey{Key: append(good.secret()[:32:32], 1), KeyID: "a"}),
		"no kid":            fileOf(t, jose.JSONWebKey{Key: good.secret()}),
		"a long kid":        fileOf(t, jose.JSONWebKey{Key: good.secret(), KeyID: strings.Repeat("k", 129)}),
		"a kid twice":       fileOf(t, good.jwk(), jose.JSONWebKey{Key: freshSealKey(t).secret(), KeyID: good.id}),
		"another use":       fileOf(t, jose.JSONWebKey{Key: good.secret(), KeyID: "a", Use: "sig"}),
		"another algorithm": fileOf(t, jose.JSONWebKey{Key: good.secret(), KeyID: "a", Algorithm: "HS256"}),
		"too many":          fileOf(t, many...),
		"a good and a bad":  fileOf(t, good.jwk(), jose.JSONWebKey{Key: private, KeyID: "a"}),
		"too large":         append(fileOf(t, good.jwk()), bytes.Repeat([]byte(" "), maxFile)...),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(writeFile(t, content, 0o600))
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), good.secretText()) || strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("the error quotes the file: %v", err)
			}
		})
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder was accepted")
	}
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
	if err != nil || again.primary() != first.primary() {
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

func TestProcessesThatStartAtOnceShareOneKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	var wg sync.WaitGroup
	kids := make([]string, 16)
	for i := range kids {
		wg.Go(func() {
			s, err := LoadOrCreate(path)
			if err != nil {
				t.Errorf("process %d: %v", i, err)
				return
			}
			kids[i] = s.primary()
		})
	}
	wg.Wait()
	for _, kid := range kids {
		if kid != kids[0] {
			t.Fatalf("kids = %q, want one", kids)
		}
	}
}

// Neither a signing key nor a key of the file shows itself, however it is printed.
func TestKeysDoNotShowThemselves(t *testing.T) {
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	seal := freshSealKey(t)
	s := &Sealer{path: "keys.json", keys: []sealKey{seal}}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("key", "key", k, "keys", []Key{k}, "pointer", &k, "any", slog.AnyValue(k), "sealer", s, "sealers", []*Sealer{s})
	ring, err := NewRing(k)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, strings.Repeat(verb+" ", 5)+"\n", k, []any{k, &k, struct{ K Key }{k}, struct{ k Key }{k}}, ring.keys, s, []any{*s, seal, s.keys})
	}
	b, err := json.Marshal(struct{ K, S any }{k, s})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	for _, secret := range [][]byte{k.private().Seed(), seal.secret()} {
		for _, form := range []string{
			base64.RawURLEncoding.EncodeToString(secret), strings.Trim(fmt.Sprintf("%d", secret[:8]), "[]"), fmt.Sprintf("%x", secret[:8]),
		} {
			if strings.Contains(out.String(), form) {
				t.Errorf("a secret is in:\n%s", out.String())
			}
		}
	}
	if !strings.Contains(out.String(), k.id) || !strings.Contains(out.String(), seal.id) {
		t.Error("the kids are not shown: the test looks at nothing")
	}
}

// The key file has its own fuzz target: whatever it holds, nothing panics, and
// what is taken can encrypt and decrypt.
func FuzzKeyFile(f *testing.F) {
	seal, err := generateSealKey()
	if err != nil {
		f.Fatal(err)
	}
	key, err := New()
	if err != nil {
		f.Fatal(err)
	}
	good, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{seal.jwk()}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","kid":"k"}]}`))
	path := filepath.Join(f.TempDir(), "keys.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(path)
		if err != nil {
			return
		}
		sealed, err := s.seal(key)
		if err != nil {
			t.Fatalf("took a key that cannot encrypt: %v", err)
		}
		if _, err := s.open(entry{ID: key.id, Sealed: sealed, SealedBy: s.primary()}); err != nil {
			t.Errorf("took a key that cannot decrypt: %v", err)
		}
	})
}
