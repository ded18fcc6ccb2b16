// Package secrets looks for what nothing may show: the keys of a stack and the tokens of
// its callers and workers.
package secrets

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// Token matches a compact JWS or JWT: three parts of base64url, the first of which
// begins with {" as it must.
var Token = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}`)

// Secrets by what they are for.
type Secrets map[string]string

// OfStack are the keys in the data folder of a stack.
func OfStack(data string) (Secrets, error) {
	found := Secrets{}
	files, err := FilesUnder(data, "keys")
	if err != nil {
		return nil, err
	}
	for path, raw := range files {
		for _, s := range KeysIn(raw) {
			found["key in "+path] = s
		}
	}
	for _, file := range []string{"keys/openfga.key", "keys/binding-ids.key", "keys/issuer.jwk", "keys/capability-encryption.jwks"} {
		if found["key in "+file] == "" {
			return nil, fmt.Errorf("%s: no key found in it", file)
		}
	}
	return found, nil
}

// KeysIn gives the private parts of a JWK or a set of them, or the whole of a key
// that is plain text.
func KeysIn(raw []byte) []string {
	type key struct {
		D string `json:"d"`
		K string `json:"k"` // of a symmetric one
	}
	var doc struct {
		key

		Keys []key `json:"keys"`
	}
	if json.Unmarshal(raw, &doc) != nil {
		return []string{strings.TrimSpace(string(raw))}
	}
	var found []string
	for _, k := range append(doc.Keys, doc.key) {
		if secret := k.D + k.K; secret != "" {
			found = append(found, secret)
		}
	}
	return found
}

// In names the secrets that stand in a text.
func (s Secrets) In(text string) []string {
	var found []string
	for what, secret := range s {
		if strings.Contains(text, secret) {
			found = append(found, what)
		}
	}
	if Token.MatchString(text) {
		found = append(found, "a token")
	}
	return found
}

// FilesUnder reads the regular files under a folder of the data, by their path in it.
func FilesUnder(data, folder string) (map[string][]byte, error) {
	found := map[string][]byte{}
	root := os.DirFS(data)
	err := fs.WalkDir(root, folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		raw, err := fs.ReadFile(root, path)
		found[path] = raw
		return err
	})
	return found, err
}
