package capability

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/strictjson"
)

// payload is the JWT claims set. Its tags say which claims are required: those
// without omitempty.
type payload struct {
	Issuer       string   `json:"iss"`
	Audience     string   `json:"aud"` // one string: an array is refused by its type
	Subject      string   `json:"sub"`
	Actor        *actor   `json:"act,omitempty"`
	ID           string   `json:"jti"`
	IssuedAt     int64    `json:"iat"`
	NotBefore    int64    `json:"nbf"`
	Expiry       int64    `json:"exp"`
	BindingID    string   `json:"binding_id"`
	Epoch        uint32   `json:"epoch"`
	Generation   uint32   `json:"lease_generation"`
	RunID        string   `json:"run_id,omitempty"`
	Tools        []string `json:"tools,omitempty"`
	ApproveTools []string `json:"approve_tools,omitempty"`
	MemoryScopes []string `json:"memory_scopes,omitempty"`
	Handles      []string `json:"handles,omitempty"`
	ModelAlias   string   `json:"model_alias,omitempty"`
}

// actor is the act claim (RFC 8693, section 4.1), without nesting: what was
// narrowed once cannot be exchanged again. Here sub stays the holder and act is
// the sandbox, the other way round than in that RFC, because every receiver
// compares sub with its TLS peer.
type actor struct {
	Subject string `json:"sub"`
}

// Payload is the claims set as a token carries it, unsigned. It refuses what
// [Claims.Validate] refuses. Times are cut to whole seconds, so a token never
// lives longer than was asked for.
func (c Claims) Payload() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("capability: %w", err)
	}
	p := payload{
		Issuer:       c.Issuer,
		Audience:     string(c.Audience),
		Subject:      c.Subject.String(),
		ID:           c.ID,
		IssuedAt:     c.IssuedAt.Unix(),
		NotBefore:    c.NotBefore.Unix(),
		Expiry:       c.Expiry.Unix(),
		BindingID:    c.BindingID,
		Epoch:        c.Epoch,
		Generation:   c.Generation,
		RunID:        c.RunID,
		Tools:        c.Tools,
		ApproveTools: c.ApproveTools,
		MemoryScopes: c.MemoryScopes,
		Handles:      c.Handles,
		ModelAlias:   c.ModelAlias,
	}
	if c.Narrowed() {
		p.Actor = &actor{c.Actor.String()}
	}
	return json.Marshal(p)
}

// parsePayload takes a claims set whose signature was verified.
func parsePayload(data []byte) (Claims, error) {
	var p payload
	err := strictjson.Unmarshal(data, &p, strictjson.Options{MaxBytes: MaxTokenBytes, MaxDepth: 2, RequireFields: true})
	if err != nil {
		return Claims{}, err
	}
	subject, err := spiffeid.FromString(p.Subject)
	if err != nil {
		return Claims{}, invalid("sub", "a SPIFFE ID")
	}
	c := Claims{
		ID:           p.ID,
		Issuer:       p.Issuer,
		Audience:     Audience(p.Audience),
		Subject:      subject,
		IssuedAt:     time.Unix(p.IssuedAt, 0).UTC(),
		NotBefore:    time.Unix(p.NotBefore, 0).UTC(),
		Expiry:       time.Unix(p.Expiry, 0).UTC(),
		BindingID:    p.BindingID,
		Epoch:        p.Epoch,
		Generation:   p.Generation,
		RunID:        p.RunID,
		Tools:        p.Tools,
		ApproveTools: p.ApproveTools,
		MemoryScopes: p.MemoryScopes,
		Handles:      p.Handles,
		ModelAlias:   p.ModelAlias,
	}
	if p.Actor != nil {
		if c.Actor, err = spiffeid.FromString(p.Actor.Subject); err != nil {
			return Claims{}, invalid("act", "a SPIFFE ID")
		}
	}
	return c, c.Validate()
}
