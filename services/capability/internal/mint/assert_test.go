package mint_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/capability/internal/mint"
)

// endpoint is the one token endpoint that the worlds of this package list.
const endpoint = "https://sts.example/token"

func (w *world) assert(t *testing.T, change func(*mint.AssertRequest)) (mint.Token, error) {
	t.Helper()
	req := mint.AssertRequest{Holder: toolBroker, Token: w.shown(t, capability.ToolBroker), Audience: endpoint}
	if change != nil {
		change(&req)
	}
	return w.minter.Assert(t.Context(), w.grant(t, nil), req)
}

// asserted takes an assertion as a token endpoint does: by the key set, and by the
// type that it pins.
func (w *world) asserted(t *testing.T, compact string) (claims map[string]any, header jose.Header) {
	t.Helper()
	signed, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	key, err := w.keys.Key(t.Context(), signed.Signatures[0].Header.KeyID)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := signed.Verify(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return claims, signed.Signatures[0].Header
}

func TestAnAssertionSaysWhoTheCommittedSubjectIs(t *testing.T) {
	w := newWorld(t, func(r *binding.Record) { r.Identity.Organization = "org-1" })
	got, err := w.assert(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims, header := w.asserted(t, got.Reveal())
	if typ := header.ExtraHeaders[jose.HeaderType]; typ != capability.AssertionType {
		t.Errorf("typ = %v", typ)
	}
	second := float64(w.now.Unix())
	for name, want := range map[string]any{
		"iss": issuer, "sub": "user-canary", "organization": "org-1", "aud": endpoint, "jti": got.ID, "iat": second, "nbf": second,
		"exp": second + mint.AssertionTTL.Seconds(),
	} {
		if claims[name] != want {
			t.Errorf("%s = %v, want %v", name, claims[name], want)
		}
	}
	if act, ok := claims["act"].(map[string]any); !ok || act["sub"] != toolBroker.String() || len(claims) != 9 {
		t.Errorf("claims = %v", claims)
	}
	if log := w.log.String(); strings.Count(log, "subject asserted") != 1 || strings.Contains(log, "user-canary") || strings.Contains(log, got.Reveal()) {
		t.Errorf("log = %s", log)
	}
}

// Whatever takes a capability takes no assertion: not of any audience, not in the
// sandbox's hands nor in ToolBroker's, and not in exchange for anything.
func TestAnAssertionIsNoCapability(t *testing.T) {
	w := newWorld(t, nil)
	got, err := w.assert(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	v, err := capability.NewVerifier(capability.Config{Issuer: issuer, Keys: w.keys, Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	for _, aud := range append(capability.Audiences(), endpoint) {
		for _, holder := range []spiffeid.ID{subject, toolBroker} {
			if _, err := v.Verify(t.Context(), got.Reveal(), aud, holder); !fault.Is(err, fault.CapabilityInvalid) {
				t.Errorf("%s, %s: %v", aud, holder, err)
			}
		}
	}
	w.signer.signed.Store(0)
	w.log.Reset()
	_, err = w.exchange(t, toolBroker, got.Reveal(), capability.FileBroker)
	w.notExchanged(t, err, fault.CapabilityInvalid)
	_, err = w.assert(t, func(r *mint.AssertRequest) { r.Token = got.Reveal() })
	w.notExchanged(t, err, fault.CapabilityInvalid)
}

func TestAnAssertionOutlivesNeitherTheRunNorWhatWasShown(t *testing.T) {
	w := newWorld(t, func(r *binding.Record) { r.Run.Deadline = start.Add(20 * time.Second) })
	got, err := w.assert(t, nil)
	if err != nil || got.ExpiresAt.After(start.Add(20*time.Second)) {
		t.Errorf("ends at %v, %v", got.ExpiresAt, err)
	}
}

func TestAssertionsThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*mint.AssertRequest)
		want   fault.Code
	}{
		"the control plane": {func(r *mint.AssertRequest) { r.Holder = identity.Service(td, "controlplane") }, fault.CallerNotAllowed},
		"the file broker":   {func(r *mint.AssertRequest) { r.Holder = identity.Service(td, "filebroker") }, fault.CallerNotAllowed},
		"the sandbox":       {func(r *mint.AssertRequest) { r.Holder = subject }, fault.CallerNotAllowed},
		"another domain's ToolBroker": {func(r *mint.AssertRequest) {
			r.Holder = spiffeid.RequireFromString("spiffe://other.test/svc/toolbroker")
		}, fault.CallerNotAllowed},
		"an endpoint not listed": {func(r *mint.AssertRequest) { r.Audience = endpoint + "/" }, fault.AudienceMismatch},
		"a service as endpoint":  {func(r *mint.AssertRequest) { r.Audience = "file-broker" }, fault.AudienceMismatch},
		"no endpoint":            {func(r *mint.AssertRequest) { r.Audience = "" }, fault.AudienceMismatch},
		"no token":               {func(r *mint.AssertRequest) { r.Token = "" }, fault.CapabilityMissing},
		"not a token":            {func(r *mint.AssertRequest) { r.Token = "x.y.z" }, fault.CapabilityInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			_, err := w.assert(t, tc.change)
			w.notExchanged(t, err, tc.want)
		})
	}
	for _, from := range capability.Audiences() {
		if from == capability.ToolBroker {
			continue
		}
		w := newWorld(t, nil)
		shown := w.shown(t, from)
		_, err := w.assert(t, func(r *mint.AssertRequest) { r.Token = shown })
		w.notExchanged(t, err, fault.AudienceMismatch)
	}
}

// An assertion can be had for a run that is committed and whose end is open, by
// who was called in it.
func TestNoAssertionAfterTheLeaseOrRunChanged(t *testing.T) {
	t.Run("replaced between admission and assertion", func(t *testing.T) {
		w := newWorld(t, nil)
		token, g := w.shown(t, capability.ToolBroker), w.grant(t, nil)
		w.replace(t)
		_, err := w.minter.Assert(t.Context(), g, mint.AssertRequest{Holder: toolBroker, Token: token, Audience: endpoint})
		w.notExchanged(t, err, fault.StaleLease)
	})
	t.Run("the end is decided", func(t *testing.T) {
		w := newWorld(t, nil)
		token := w.shown(t, capability.ToolBroker)
		if _, err := w.writer.SetEnd(t.Context(), w.grant(t, nil), binding.End{Kind: binding.EndCancelling, Reason: "client_request"}); err != nil {
			t.Fatal(err)
		}
		_, err := w.minter.Assert(t.Context(), w.grant(t, nil), mint.AssertRequest{Holder: toolBroker, Token: token, Audience: endpoint})
		w.notExchanged(t, err, fault.Cancelled)
	})
	t.Run("no endpoint is listed", func(t *testing.T) {
		w := newWorld(t, nil)
		w.list(t)
		_, err := w.assert(t, nil)
		w.notExchanged(t, err, fault.AudienceMismatch)
	})
}
