// Package secretfile reads secrets from files. No error of it holds a byte of
// one.
package secretfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"cofferdam.dev/services/toolbroker/internal/project"
)

// maxBytes bounds a secret.
const maxBytes = 16 << 10

// Read reads a secret of printable ASCII characters on one line, of at least
// project.MinSecret bytes, which may end in a line break.
func Read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	secret := strings.TrimRight(string(raw), "\r\n")
	switch {
	case len(secret) > maxBytes:
		return "", fmt.Errorf("secret: %s holds more than %d bytes", path, maxBytes)
	case len(secret) < project.MinSecret:
		return "", fmt.Errorf("secret: %s holds fewer than %d characters: so short a secret could not be cut out of results", path, project.MinSecret)
	case strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' || r > '~' }):
		return "", fmt.Errorf("secret: %s holds other characters than printable ASCII on one line", path)
	}
	return secret, nil
}
