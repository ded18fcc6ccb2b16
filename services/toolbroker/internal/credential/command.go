package credential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"cofferdam.dev/pkg/process"
	"cofferdam.dev/pkg/strictjson"
)

// Command is a program that prints a token: on one line as it is, or as one JSON
// object {"token": "...", "expires_at": "RFC 3339"} whose second field may be
// absent. It runs in a process of its own with no environment and no input, and
// what it says on stderr is not read.
type Command struct {
	// Args are the absolute path of the program and its arguments, which any user
	// of the machine can read: no secrets.
	Args []string
}

// stopGrace is how long a program has after SIGTERM.
const stopGrace = 500 * time.Millisecond

// Keep implements Source.
func (Command) Keep() time.Duration { return 5 * time.Minute }

// Fetch implements Source.
func (c Command) Fetch(ctx context.Context) (Token, error) {
	out := &limited{most: 2 * maxToken}
	p, err := process.Start(ctx, process.Spec{Path: c.Args[0], Args: c.Args[1:], Dir: "/", Stdout: out})
	if err != nil {
		return Token{}, fmt.Errorf("the program did not start: %w", err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return Token{}, errors.Join(ctx.Err(), p.Stop(stopGrace))
	}
	if err := errors.Join(ctx.Err(), p.Err()); err != nil {
		return Token{}, fmt.Errorf("the program: %w", err)
	}
	return parsePrinted(out.Bytes())
}

func parsePrinted(raw []byte) (Token, error) {
	text := bytes.TrimSpace(raw)
	if !bytes.HasPrefix(text, []byte("{")) {
		return Token{Value: string(text)}, nil
	}
	var said struct {
		Token     string `json:"token"`
		ExpiresAt string `json:"expires_at,omitempty"`
	}
	// The error of it is not passed on: it may name a key, which is what was printed.
	if strictjson.Unmarshal(text, &said, strictjson.Options{MaxBytes: 2 * maxToken, RequireFields: true}) != nil {
		return Token{}, errors.New("the program printed an object in another form")
	}
	t := Token{Value: strings.TrimSpace(said.Token)}
	if said.ExpiresAt == "" {
		return t, nil
	}
	at, err := time.Parse(time.RFC3339, said.ExpiresAt)
	if err != nil {
		return Token{}, errors.New("the program printed a time in another form than RFC 3339")
	}
	t.Expires = at
	return t, nil
}

// limited takes so much output and no more.
type limited struct {
	bytes.Buffer

	most int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > l.most {
		return 0, io.ErrShortWrite
	}
	return l.Buffer.Write(p)
}
