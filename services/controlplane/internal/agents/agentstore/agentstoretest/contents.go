package agentstoretest

import (
	"context"
	"crypto/sha256"
	"io"
	"sync"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

// Contents keeps contents in memory, in the place of a file broker.
type Contents struct {
	mu     sync.Mutex
	stored map[blob.Content]*Stored
	// Away, where it is set, is the answer to everything.
	away error
}

// Stored is one content.
type Stored struct {
	Bytes []byte
	// Puts are how often it was put, and Kept whether a version names it.
	Puts int
	Kept bool
}

// PutContent implements agents.Contents.
func (c *Contents) PutContent(_ context.Context, of blob.Content, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.away != nil:
		return c.away
	case blob.Of(b) != of:
		return fault.New(fault.InvalidRequest, "test")
	}
	if c.stored == nil {
		c.stored = map[blob.Content]*Stored{}
	}
	if c.stored[of] == nil {
		c.stored[of] = &Stored{Bytes: b}
	}
	c.stored[of].Puts++
	return nil
}

// KeepContent implements agents.Contents.
func (c *Contents) KeepContent(_ context.Context, of blob.Content) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := c.stored[of]; {
	case c.away != nil:
		return c.away
	case s == nil:
		return fault.New(fault.NotFound, "test")
	default:
		s.Kept = true
		return nil
	}
}

// IssueContents implements lease.Contents.
func (c *Contents) IssueContents(_ context.Context, env fence.Envelope, sums [][sha256.Size]byte) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away != nil {
		return "", c.away
	}
	there := map[[sha256.Size]byte]bool{}
	for of := range c.stored {
		there[of.SHA256] = true
	}
	for _, sum := range sums {
		if !there[sum] {
			return "", fault.New(fault.NotFound, "test")
		}
	}
	return "contents-of-" + env.RunID, nil
}

// Away answers everything with err from now on; nil is there again.
func (c *Contents) Away(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = err
}

// Forget removes a content.
func (c *Contents) Forget(of blob.Content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stored, of)
}

// Of gives a content, or a zero one.
func (c *Contents) Of(of blob.Content) Stored {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.stored[of]; s != nil {
		return *s
	}
	return Stored{}
}
