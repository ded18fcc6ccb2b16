package rpc

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
)

// door checks what can be known of a request before its body is read, and then
// its envelope.
type door struct {
	verifier *capability.Verifier
	guard    *fence.Guard
	logger   *slog.Logger
}

// enter checks peer and capability, in the order of the design: the TLS peer in
// the list; the token; its subject is the peer.
func (d *door) enter(ctx context.Context, p Policy, state *tls.ConnectionState, authorization string) (*call, error) {
	peer, err := identity.PeerFromTLS(state)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unauthenticated, "rpc.enter")
	}
	if err := p.Callers.Check(peer); err != nil {
		return nil, fault.Wrap(err, fault.CallerNotAllowed, "rpc.enter")
	}
	c := &call{peer: peer}
	if p.Audience == "" {
		return c, nil
	}
	token, ok := bearer(authorization)
	if !ok {
		return nil, fault.New(fault.CapabilityMissing, "rpc.enter")
	}
	subject := p.Subject
	if subject.IsZero() {
		subject = peer
	}
	claims, err := d.verifier.Verify(ctx, token, p.Audience, subject)
	if err != nil {
		return nil, err
	}
	c.claims, c.token = &claims, token
	return c, nil
}

// admit checks the envelope of a request: it is the one that the capability
// names, and it passes the fence. A later message of a stream must carry the
// same envelope; the write that ends the stream asks the committed state again.
func (d *door) admit(ctx context.Context, p Policy, c *call, e fence.Envelope) error {
	if c.envelope != nil {
		if !sameAuthority(*c.envelope, e) {
			return fault.New(fault.CapabilityScope, "rpc.admit", fault.Detail("envelope: every message of a stream carries the same one"))
		}
		return nil
	}
	if c.claims != nil {
		if err := c.claims.Matches(e); err != nil {
			return err
		}
	}
	if err := d.fence(ctx, p.Fence, c, e); err != nil {
		return err
	}
	c.envelope = &e
	return nil
}

func (d *door) fence(ctx context.Context, mode FenceMode, c *call, e fence.Envelope) (err error) {
	switch {
	case mode == NoFence:
		if !time.Now().Before(e.Deadline) {
			return fault.New(fault.DeadlineExceeded, "rpc.fence")
		}
		return nil
	case mode == RunFence, mode == AnyFence && e.RunID != "":
		c.grant, err = d.guard.Admit(ctx, e)
	default:
		c.grant, err = d.guard.AdmitLease(ctx, e)
	}
	if fault.Is(err, fault.StaleLease) {
		d.logger.WarnContext(ctx, "fence refused a request", "peer", c.peer.String(), "epoch", e.Epoch, "generation", e.Generation)
	}
	return err
}

func sameAuthority(a, b fence.Envelope) bool {
	return a.BindingID == b.BindingID && a.Epoch == b.Epoch && a.Generation == b.Generation &&
		a.RunID == b.RunID && a.IdempotencyKey == b.IdempotencyKey
}

// bearer takes the token out of an Authorization header.
func bearer(h string) (string, bool) {
	scheme, token, ok := strings.Cut(h, " ")
	if !ok || !strings.EqualFold(scheme, "bearer") || token == "" || strings.ContainsAny(token, " ,\t") {
		return "", false
	}
	return token, true
}
