package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"

	"cofferdam.dev/pkg/secretfile"
)

// Bounds of a key file, in bytes.
const (
	minKey = 32
	maxKey = 4 << 10
)

// Digester writes subjects in a form that only who has the key can compare with a
// name.
type Digester struct{ key []byte }

// ReadKey reads the key from a file of at least 32 bytes, all of which count.
func ReadKey(path string) (Digester, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Digester{}, fmt.Errorf("audit: key: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() < minKey || info.Size() > maxKey {
		return Digester{}, fmt.Errorf("audit: key: %s has to be a file of %d to %d bytes", path, minKey, maxKey)
	}
	if err := secretfile.Private(info); err != nil {
		return Digester{}, fmt.Errorf("audit: key: %w", err)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return Digester{}, fmt.Errorf("audit: key: %w", err)
	}
	return Digester{key}, nil
}

// Subject is the digest of a subject; empty for none.
func (d Digester) Subject(subject string) string {
	if subject == "" || len(d.key) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, d.key)
	mac.Write([]byte("cofferdam audit subject v1\x00"))
	mac.Write([]byte(subject))
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}
