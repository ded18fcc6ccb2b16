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
	"cofferdam.dev/pkg/strictjson"
)

// ErrNoFile says that there is no key file.
var ErrNoFile = errors.New("signing keys: there is no key file")

// document is the key file: a JWK set (RFC 7517) of private Ed25519 keys, the one
// that signs first. To rotate, add the new key at the end, so that it is
// published; when every receiver has asked for the set again
// (capability.DefaultRefreshAfter), move it to the front; and when the last
// capability of the old key has expired, take that one out. The service reads
// the file when it starts.
type document struct {
	Keys []json.RawMessage `json:"keys"`
}

// Load reads the key file. It refuses one that anybody but its owner may read or
// write, and every key that is not a complete Ed25519 key with a kid. Errors name
// the file and the key's place in it, and nothing from inside.
func Load(path string) (*Ring, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	var doc document
	opts := strictjson.Options{MaxBytes: capability.MaxKeySetBytes, MaxDepth: 4, RequireFields: true}
	if err := strictjson.Unmarshal(data, &doc, opts); err != nil {
		return nil, fmt.Errorf("signing keys: %s is not a JWK set: write {\"keys\":[…]}, or let --create-key make the file", path)
	}
	keys := make([]Key, len(doc.Keys))
	for i, raw := range doc.Keys {
		if keys[i], err = parse(raw); err != nil {
			return nil, fmt.Errorf("signing keys: %s: key %d: %w", path, i+1, err)
		}
	}
	return NewRing(keys...)
}

// LoadOrCreate is Load, after making a file with one key where there is none.
func LoadOrCreate(path string) (*Ring, error) {
	ring, err := Load(path)
	if !errors.Is(err, ErrNoFile) {
		return ring, err
	}
	key, err := New()
	if err != nil {
		return nil, err
	}
	if err := create(path, key); err != nil {
		return nil, err
	}
	return Load(path) // also where another replica was faster: then its key is the one
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; --create-key makes it", ErrNoFile, path)
	}
	if err != nil {
		return nil, fmt.Errorf("signing keys: %w", err)
	}
	defer f.Close()
	info, err := f.Stat() // of what was opened, not of what the name means by now
	switch {
	case err != nil:
		return nil, fmt.Errorf("signing keys: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("signing keys: %s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("signing keys: %s has mode %04o, so that others may use it: chmod 0600, and rotate the keys if anybody could read them", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, capability.MaxKeySetBytes+1)) // one more than Load takes
	if err != nil {
		return nil, fmt.Errorf("signing keys: %w", err)
	}
	return data, nil
}

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
	case k.Use != "" && k.Use != "sig", k.Algorithm != "" && k.Algorithm != string(capability.Algorithm):
		return Key{}, errors.New("made for another use: use is sig, alg is EdDSA, or neither is there")
	}
	return newKey(k.KeyID, private), nil
}

// create writes the file in one step and never over another: it is complete
// before it has its name.
func create(path string, key Key) (err error) {
	doc, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: key.private(), KeyID: key.id, Algorithm: string(capability.Algorithm), Use: "sig"},
	}})
	if err != nil {
		return errors.New("signing keys: a new key cannot be encoded") // the error could quote it
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("signing keys: %w", err)
	}
	defer folder.Close()
	f, err := os.CreateTemp(folder.Name(), ".signing-keys-*") // mode 0600
	if err != nil {
		return fmt.Errorf("signing keys: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(append(doc, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("signing keys: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("signing keys: %w", err)
	}
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("signing keys: %w", err)
	}
	return nil
}
