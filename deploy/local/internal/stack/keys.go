package stack

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
)

const (
	keyBytes    = 32
	maxKeyBytes = 4 << 10
)

// keys makes the keys that are not there yet. The capability service makes its own.
// It gives the preshared key of the OpenFGA server, which is needed here as well.
func keys(d datadir.Dir) (openFGA string, err error) {
	if _, err := datadir.Keep(d.BindingKey(), maxKeyBytes, randomHex); err != nil {
		return "", fmt.Errorf("binding key: %w", err)
	}
	if _, err := datadir.Keep(d.AuditKey(), maxKeyBytes, randomHex); err != nil {
		return "", fmt.Errorf("audit key: %w", err)
	}
	if _, err := issuer.Open(d); err != nil {
		return "", err
	}
	key, err := datadir.Keep(d.OpenFGAKey(), maxKeyBytes, randomHex)
	if err != nil {
		return "", fmt.Errorf("openfga key: %w", err)
	}
	return string(key), nil
}

// randomHex is a key as text, since some of it goes into a header.
func randomHex() ([]byte, error) {
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	return hex.AppendEncode(nil, key), nil
}
