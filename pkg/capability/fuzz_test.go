package capability_test

import (
	"testing"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
)

// FuzzVerify looks for a panic, and for a second spelling of a token: whatever
// is not letter for letter the one token that was signed has to be refused.
func FuzzVerify(f *testing.F) {
	m := capabilitytest.NewMinter(f)
	right := capabilitytest.Claims(capability.ToolBroker, sandbox)
	signed := m.Mint(right)
	f.Add(signed)
	for _, b := range m.Broken(right) {
		f.Add(b.Token)
	}
	f.Add(signed + ".")
	f.Add(strayBits(signed))
	f.Add("..")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	v := m.Verifier()
	f.Fuzz(func(t *testing.T, token string) {
		c, err := v.Verify(t.Context(), token, right.Audience, sandbox)
		switch {
		case err != nil && c.ID != "":
			t.Errorf("claims came with the error %v", err)
		case err == nil && token != signed && c.Matches(envelopeOf(right)) == nil:
			t.Errorf("accepted %q", token)
		}
	})
}

// FuzzClaims signs any payload: behind the signature the decoder decides. What
// it accepts is valid, and means the same when it is encoded again.
func FuzzClaims(f *testing.F) {
	m := capabilitytest.NewMinter(f)
	for _, aud := range capability.Audiences() {
		c := capabilitytest.Claims(aud, sandbox)
		c.ID, c.Issuer = "jti-1", m.Issuer()
		c.IssuedAt, c.NotBefore, c.Expiry = time.Unix(1, 0), time.Unix(1, 0), time.Unix(1<<40, 0)
		payload, err := c.Payload()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload, string(aud))
	}
	v := m.Verifier()
	f.Fuzz(func(t *testing.T, payload []byte, aud string) {
		if len(payload) == 0 {
			return
		}
		c, err := v.Verify(t.Context(), m.Mint(capability.Claims{}, capabilitytest.WithPayload(payload)), capability.Audience(aud), sandbox)
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil || string(c.Audience) != aud || c.Subject != sandbox {
			t.Fatalf("accepted %q: %v", payload, err)
		}
		again, err := c.Payload()
		if err != nil {
			t.Fatal(err)
		}
		d, err := v.Verify(t.Context(), m.Mint(capability.Claims{}, capabilitytest.WithPayload(again)), capability.Audience(aud), sandbox)
		if err != nil || d.ID != c.ID || d.RunID != c.RunID || !d.Expiry.Equal(c.Expiry) || d.Matches(envelopeOf(c)) != nil {
			t.Errorf("%q and %q differ: %v", payload, again, err)
		}
	})
}
