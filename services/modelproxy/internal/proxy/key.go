package proxy

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
)

const (
	// maxKey bounds a key file, in bytes.
	maxKey = 16 << 10
	// shortestKey is the length from which on a key is looked for in answers.
	shortestKey = 16
)

// secret is a key. However it is printed, it prints as nothing of itself.
type secret struct{ value string }

// String implements [fmt.Stringer].
func (secret) String() string { return "[redacted]" }

// GoString implements [fmt.GoStringer].
func (secret) GoString() string { return "[redacted]" }

// LogValue implements [slog.LogValuer].
func (secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// in reports whether the key stands in text. A short one is a word that an
// endpoint without keys is given for form's sake, and may stand anywhere.
func (s secret) in(text []byte) bool {
	return len(s.value) >= shortestKey && bytes.Contains(text, []byte(s.value))
}

// readKey reads a key file. It is read for each call: beside a model's answer
// that costs nothing, and no rotated key stays in use.
func readKey(path string) (secret, error) {
	if path == "" {
		return secret{}, nil
	}
	// Opening a pipe would wait for its writer.
	if info, err := os.Stat(path); err != nil {
		return secret{}, fmt.Errorf("key_file: %w", err)
	} else if !info.Mode().IsRegular() {
		return secret{}, fmt.Errorf("key_file: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return secret{}, fmt.Errorf("key_file: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return secret{}, fmt.Errorf("key_file: %w", err)
	}
	key := bytes.TrimSpace(data)
	if len(key) == 0 || len(data) > maxKey || bytes.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return secret{}, fmt.Errorf("key_file: %s must hold one key of printable ASCII, at most %d bytes", path, maxKey)
	}
	return secret{value: string(key)}, nil
}
