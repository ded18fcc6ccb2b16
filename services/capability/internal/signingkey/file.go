package signingkey

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/secretfile"
	"cofferdam.dev/pkg/strictjson"
)

// ErrNoFile says that there is no key file.
var ErrNoFile = errors.New("key file: there is none")

// Bounds of a key file.
const (
	maxFile     = 64 << 10 // bytes
	maxSealKeys = 8
)

// Load reads the key file: a JWK set (RFC 7517) of symmetric keys of 256 bits,
// each with a kid. To rotate, put the new key in front of the old one in the file
// of each replica in turn: before that as a second one, so that a replica that
// still has the old order can decrypt what the others encrypt. The replicas
// encrypt the signing keys anew with the first one; when the log says so the old
// key can be taken out. The service reads the file when it starts.
//
// A file that others may read or write is refused, as package secretfile has it. Errors name the
// file and the key's place in it, and nothing from inside.
func Load(path string) (*Sealer, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := strictjson.Unmarshal(data, &doc, strictjson.Options{MaxBytes: maxFile, MaxDepth: 4, RequireFields: true}); err != nil {
		return nil, fmt.Errorf("key file: %s is not a JWK set: write {\"keys\":[…]}, or let --create-key make the file", path)
	}
	if len(doc.Keys) == 0 || len(doc.Keys) > maxSealKeys {
		return nil, fmt.Errorf("key file: %s: 1 to %d keys", path, maxSealKeys)
	}
	s := &Sealer{path: path}
	seen := map[string]bool{}
	for i, raw := range doc.Keys {
		k, err := parseSealKey(raw)
		if err == nil && seen[k.id] {
			err = errors.New("its kid stands there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("key file: %s: key %d: %w", path, i+1, err)
		}
		seen[k.id] = true
		s.keys = append(s.keys, k)
	}
	return s, nil
}

// LoadOrCreate is Load, after making a file with one key where there is none.
func LoadOrCreate(path string) (*Sealer, error) {
	s, err := Load(path)
	if !errors.Is(err, ErrNoFile) {
		return s, err
	}
	key, err := generateSealKey()
	if err != nil {
		return nil, err
	}
	if err := create(path, key); err != nil {
		return nil, err
	}
	return Load(path) // also where another process was faster: then its key is the one
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; --create-key makes it", ErrNoFile, path)
	}
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat() // of what was opened, not of what the name means by now
	switch {
	case err != nil:
		return nil, fmt.Errorf("key file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("key file: %s is not a regular file", path)
	}
	if err := secretfile.Private(info); err != nil {
		return nil, fmt.Errorf("key file: %s: %w; put another key in front if anybody could read it", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // one more than Load takes
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	return data, nil
}

func parseSealKey(raw []byte) (sealKey, error) {
	var k jose.JSONWebKey
	if k.UnmarshalJSON(raw) != nil { // the error could quote the key
		return sealKey{}, errors.New("not a JWK")
	}
	secret, ok := k.Key.([]byte)
	switch {
	case !ok || len(secret) != sealKeyBytes:
		return sealKey{}, errors.New("not a symmetric key of 256 bits (kty oct, k)")
	case k.KeyID == "" || len(k.KeyID) > 128:
		return sealKey{}, errors.New("kid: 1 to 128 bytes")
	case k.Use != "" && k.Use != "enc", k.Algorithm != "" && k.Algorithm != string(sealAlgorithm):
		return sealKey{}, errors.New("made for another use: use is enc, alg is A256GCMKW, or neither is there")
	}
	return newSealKey(k.KeyID, secret), nil
}

// parse reads a signing key.
func parse(raw []byte) (Key, error) {
	var k jose.JSONWebKey
	// This also refuses an x that does not belong to d: signing with it would give
	// the private part away. The error is dropped because it could quote the key.
	if k.UnmarshalJSON(raw) != nil {
		return Key{}, errors.New("not a JWK")
	}
	private, ok := k.Key.(ed25519.PrivateKey)
	switch {
	case !ok:
		return Key{}, errors.New("not a private Ed25519 key (kty OKP, crv Ed25519, d)")
	case k.KeyID == "":
		return Key{}, errors.New("no kid")
	case k.Use != "sig", k.Algorithm != string(capability.Algorithm):
		return Key{}, errors.New("made for another use: use is sig and alg EdDSA")
	}
	return newKey(k.KeyID, private), nil
}

// create writes the file in one step and never over another: it is complete
// before it has its name.
func create(path string, key sealKey) (err error) {
	doc, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.jwk()}})
	if err != nil {
		return errors.New("key file: a new key cannot be encoded") // the error could quote it
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	defer folder.Close()
	f, err := os.CreateTemp(folder.Name(), ".key-file-*") // mode 0600
	if err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(append(doc, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("key file: %w", err)
	}
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	return nil
}
