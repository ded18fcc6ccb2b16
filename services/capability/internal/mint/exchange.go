package mint

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
)

// NarrowedTTL is how long a capability out of an exchange lives, at most: it is
// asked for right before it is used.
const NarrowedTTL = time.Minute

// pair is one exchange that may be had: the service shows a sandbox's capability
// for the audience from, and gets one of its own for to.
type pair struct {
	service  string
	from, to capability.Audience
}

// pairs are all of them. Each is here for one use, and what the narrower token
// allows is that alone: ToolBroker stores a result that is too large for an event.
func pairs() []pair {
	return []pair{{service: "toolbroker", from: capability.ToolBroker, to: capability.FileBroker}}
}

// Exchangers are the services that may exchange anything at all.
func Exchangers(td spiffeid.TrustDomain) identity.AllowList {
	var list identity.AllowList
	for _, p := range pairs() {
		list = append(list, identity.Exactly(identity.Service(td, p.service)))
	}
	return list
}

// ExchangeRequest presents a sandbox's capability.
type ExchangeRequest struct {
	// Holder is the service that asks, as it has proved itself.
	Holder spiffeid.ID
	// Token is the compact form of the sandbox's capability.
	Token string
	// Audience of the one that is asked for.
	Audience capability.Audience
}

// Exchange signs a narrower capability, in the manner of RFC 8693: its holder is
// the service that asks, it names the sandbox as the one for whom that acts, and
// binding, epoch, generation and run are those of the token. It ends with the
// token, or earlier. Who may exchange what for what is a list of pairs.
//
// Errors: caller_not_allowed (the service has no pair), audience_mismatch (no
// pair of it has this audience, or the token is for another one than the pair's),
// those of capability.Verifier.Verify, capability_scope (the token is for another
// lease or run than the envelope's), stale_lease, sandbox_not_ready, cancelled,
// deadline_exceeded, dependency_unavailable.
func (m *Minter) Exchange(ctx context.Context, g fence.Grant, req ExchangeRequest) (Token, error) {
	const op = "mint.Exchange"
	if err := g.Validate(); err != nil {
		return Token{}, err
	}
	env := g.Envelope()
	p, err := m.pair(req)
	if err != nil {
		return Token{}, err
	}
	record, err := m.load(ctx, env.BindingID)
	if err != nil {
		return Token{}, err
	}
	now := m.cfg.Now()
	sandbox, expiry, err := m.authorizeExchange(record, env, now)
	if err != nil {
		return Token{}, err
	}
	shown, err := m.verifier.Verify(ctx, req.Token, p.from, sandbox)
	if err != nil {
		return Token{}, err
	}
	if err := shown.Matches(env); err != nil {
		return Token{}, err
	}
	c := capability.Claims{
		ID: "cap_" + rand.Text(), Issuer: m.cfg.Issuer, Audience: p.to, Subject: req.Holder, Actor: sandbox,
		IssuedAt: now, NotBefore: now, Expiry: earlier(expiry, shown.Expiry),
		BindingID: shown.BindingID, Epoch: shown.Epoch, Generation: shown.Generation, RunID: shown.RunID,
	}
	if c.Expiry.Unix() <= now.Unix() { // less than a second is left
		return Token{}, fault.New(fault.DeadlineExceeded, op)
	}
	t, err := m.sign(c, 0)
	if err != nil {
		return Token{}, err
	}
	m.audit(ctx, c, t)
	return t, nil
}

func (m *Minter) pair(req ExchangeRequest) (pair, error) {
	const op = "mint.Exchange"
	code := fault.CallerNotAllowed
	for _, p := range pairs() {
		if identity.Service(m.cfg.TrustDomain, p.service) != req.Holder {
			continue
		}
		if p.to == req.Audience {
			return p, nil
		}
		code = fault.AudienceMismatch
	}
	return pair{}, fault.Wrap(errors.New("no such pair"), code, op)
}

// authorizeExchange compares the envelope with the record: the run is committed,
// its end open, and its sandbox known. Who drives it does not matter: the token
// that is shown was minted for the one that did.
func (m *Minter) authorizeExchange(r binding.Record, env fence.Envelope, now time.Time) (sandbox spiffeid.ID, expiry time.Time, err error) {
	const op = "mint.Exchange"
	if err := fence.Check(r.Committed(), env, now); err != nil {
		return spiffeid.ID{}, time.Time{}, err
	}
	switch {
	case !r.Run.End.Open():
		return spiffeid.ID{}, time.Time{}, fault.New(fault.Cancelled, op)
	case r.Lease == nil || r.Lease.InstanceUID == "":
		return spiffeid.ID{}, time.Time{}, fault.New(fault.SandboxNotReady, op)
	}
	expiry = earlier(now.Add(min(NarrowedTTL, m.cfg.MaxTTL)), r.Run.Deadline).Truncate(time.Second)
	return identity.Sandbox(m.cfg.TrustDomain, r.Lease.InstanceUID), expiry, nil
}
