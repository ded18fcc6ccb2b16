package credential

import (
	"context"
	"time"

	"cofferdam.dev/services/toolbroker/internal/secretfile"
)

// File is a secret that stands in a file. It is read anew after a short while, so
// that who replaces the file replaces the credential.
type File struct{ Path string }

// Fetch implements Source.
func (f File) Fetch(context.Context) (Token, error) {
	secret, err := secretfile.Read(f.Path)
	return Token{Value: secret}, err
}

// Keep implements Source.
func (File) Keep() time.Duration { return 5 * time.Second }
