package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

type callKey struct{}

// call is what the door learned of a request. A stream's messages arrive after
// its context was made, so the context holds a pointer; it is written by the
// one goroutine that receives and read by the handler after that.
type call struct {
	peer     spiffeid.ID
	token    string
	claims   *capability.Claims
	envelope *fence.Envelope
	grant    fence.Grant
	until    func(time.Time)
}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// PeerFrom is the SPIFFE ID that the caller proved.
func PeerFrom(ctx context.Context) (spiffeid.ID, bool) {
	if c := callFrom(ctx); c != nil && !c.peer.IsZero() {
		return c.peer, true
	}
	return spiffeid.ID{}, false
}

// ClaimsFrom are the claims of the capability that came with the request.
func ClaimsFrom(ctx context.Context) (capability.Claims, bool) {
	if c := callFrom(ctx); c != nil && c.claims != nil {
		return *c.claims, true
	}
	return capability.Claims{}, false
}

// TokenFrom is the capability that came with the request, which was verified: a
// secret, to exchange for a narrower one and for nothing else.
func TokenFrom(ctx context.Context) (string, bool) {
	if c := callFrom(ctx); c != nil && c.claims != nil {
		return c.token, true
	}
	return "", false
}

// EnvelopeFrom is the envelope of the request, once its first message was
// received.
func EnvelopeFrom(ctx context.Context) (fence.Envelope, bool) {
	if c := callFrom(ctx); c != nil && c.envelope != nil {
		return *c.envelope, true
	}
	return fence.Envelope{}, false
}

// GrantFrom is the proof that the request passed the fence. A handler whose
// policy has no fence gets an error, and so can write nothing.
func GrantFrom(ctx context.Context) (fence.Grant, error) {
	c := callFrom(ctx)
	if c == nil {
		return fence.Grant{}, fault.Wrap(errors.New("request did not come through the door"), fault.Internal, "rpc.GrantFrom")
	}
	if err := c.grant.Validate(); err != nil {
		return fence.Grant{}, err
	}
	return c.grant, nil
}
