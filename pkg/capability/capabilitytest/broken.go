package capabilitytest

import (
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
)

// Broken is a token that a receiver has to refuse.
type Broken struct {
	// Name of the case, for a subtest.
	Name string
	// Token to present; empty for none.
	Token string
	// Code of the refusal.
	Code fault.Code
}

// Broken lists the ways in which a token can be wrong that the table of every
// procedure has to have, given claims that would be right. The last ones are
// valid tokens for something else than the request, which is then to carry the
// envelope that the right claims match.
func (m *Minter) Broken(right capability.Claims) []Broken {
	with := func(change func(*capability.Claims)) capability.Claims {
		c := right
		change(&c)
		return c
	}
	past := time.Now().Add(-time.Hour)
	other := capability.HarnessWorker
	if right.Audience == other {
		other = capability.ThreadState
	}
	holder := right.Subject
	if right.Narrowed() {
		holder = right.Actor // no other audience has narrowed ones
	}
	otherClaims := Claims(other, holder)
	otherClaims.BindingID, otherClaims.Epoch, otherClaims.Generation = right.BindingID, right.Epoch, right.Generation
	if right.RunID != "" {
		otherClaims.RunID = right.RunID
	}
	otherSandbox := spiffeid.RequireFromSegments(right.Subject.TrustDomain(), "sandbox", "another-instance")
	return []Broken{
		{"no token", "", fault.CapabilityMissing},
		{"not a token", "not-a-token", fault.CapabilityInvalid},
		{"expired", m.Mint(with(func(c *capability.Claims) {
			c.IssuedAt, c.NotBefore, c.Expiry = past, past, past.Add(time.Minute)
		})), fault.CapabilityExpired},
		{"not yet valid", m.Mint(with(func(c *capability.Claims) {
			c.NotBefore = time.Now().Add(time.Minute)
			c.Expiry = time.Now().Add(time.Hour)
		})), fault.CapabilityInvalid},
		{"wrong audience", m.Mint(otherClaims), fault.AudienceMismatch},
		{"wrong issuer", m.Mint(with(func(c *capability.Claims) { c.Issuer = "https://elsewhere.example" })), fault.CapabilityInvalid},
		{"wrong type", m.Mint(right, WithType("JWT")), fault.CapabilityInvalid},
		{"wrong algorithm RS256", m.Mint(right, WithRS256()), fault.CapabilityInvalid},
		{"wrong algorithm HS256 with the public key", m.Mint(right, WithHS256()), fault.CapabilityInvalid},
		{"alg none", m.Mint(right, WithAlgNone()), fault.CapabilityInvalid},
		{"unknown key", m.Mint(right, WithKeyID("unknown"), WithForeignKey()), fault.CapabilityInvalid},
		{"forged signature", m.Mint(right, WithForeignKey()), fault.CapabilityInvalid},
		{"other sandbox's token", m.Mint(with(func(c *capability.Claims) { c.Subject = otherSandbox })), fault.CapabilityInvalid},
		{"other binding's token", m.Mint(with(func(c *capability.Claims) { c.BindingID = "hs_another_binding_0" })), fault.CapabilityScope},
		{"other epoch's token", m.Mint(with(func(c *capability.Claims) { c.Epoch++ })), fault.CapabilityScope},
		{"other generation's token", m.Mint(with(func(c *capability.Claims) { c.Generation++ })), fault.CapabilityScope},
		{"wrong run", m.Mint(with(func(c *capability.Claims) { c.RunID = "run_another" })), fault.CapabilityScope},
	}
}
