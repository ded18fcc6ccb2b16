package mint_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/capability/internal/mint"
)

var toolBroker = identity.Service(td, "toolbroker")

// shown is a worker's capability for an audience, as it was minted for the run.
func (w *world) shown(t *testing.T, aud capability.Audience) string {
	t.Helper()
	for _, s := range allScopes() {
		if s.Audience != aud {
			continue
		}
		tokens, err := w.minter.Mint(t.Context(), w.grant(t, nil), mint.Request{Subject: subject, Owner: owner, Scopes: []mint.Scope{s}})
		if err != nil {
			t.Fatal(err)
		}
		w.signer.signed.Store(0)
		w.log.Reset()
		return tokens[0].Reveal()
	}
	t.Fatalf("no scope for %s", aud)
	return ""
}

func (w *world) exchange(t *testing.T, holder spiffeid.ID, token string, to capability.Audience) (mint.Token, error) {
	t.Helper()
	return w.minter.Exchange(t.Context(), w.grant(t, nil), mint.ExchangeRequest{Holder: holder, Token: token, Audience: to})
}

// notExchanged asserts the code, that nothing was signed, and that the audit log
// has no entry.
func (w *world) notExchanged(t *testing.T, err error, want fault.Code) {
	t.Helper()
	if !fault.Is(err, want) {
		t.Errorf("error = %v, want %s", err, want)
	}
	if w.signer.signed.Load() > 0 || w.log.Len() > 0 {
		t.Errorf("%d signatures, log %s, want none", w.signer.signed.Load(), w.log)
	}
}

func TestExchangeNarrows(t *testing.T) {
	w := newWorld(t, nil)
	token := w.shown(t, capability.ToolBroker)
	w.now = w.now.Add(3 * time.Second)
	got, err := w.exchange(t, toolBroker, token, capability.FileBroker)
	if err != nil {
		t.Fatal(err)
	}
	v, err := capability.NewVerifier(capability.Config{Issuer: issuer, Keys: w.keys, Now: func() time.Time { return w.now }})
	if err != nil {
		t.Fatal(err)
	}
	c, err := v.Verify(t.Context(), got.Reveal(), capability.FileBroker, toolBroker)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Matches(envelope(w)); err != nil {
		t.Errorf("it is for another run: %v", err)
	}
	if !c.Narrowed() || c.Actor != subject || c.Subject != toolBroker || len(c.Tools)+len(c.Handles)+len(c.MemoryScopes) > 0 {
		t.Errorf("claims = %+v", c)
	}
	if life := c.Expiry.Sub(w.now); life > mint.NarrowedTTL || life < mint.NarrowedTTL-2*time.Second {
		t.Errorf("life = %v, want %v", life, mint.NarrowedTTL)
	}
	if _, err := v.Verify(t.Context(), got.Reveal(), capability.FileBroker, subject); !fault.Is(err, fault.CapabilityInvalid) {
		t.Errorf("the sandbox can use it: %v", err)
	}
	if log := w.log.String(); strings.Count(log, "capability minted") != 1 || !strings.Contains(log, `"audience":"file-broker"`) || strings.Contains(log, got.Reveal()) {
		t.Errorf("log = %s", log)
	}
}

// The narrower one never outlives the one that was shown, nor the run.
func TestExchangeNeverLengthens(t *testing.T) {
	w := newWorld(t, func(r *binding.Record) { r.Run.Deadline = start.Add(20 * time.Second) })
	token := w.shown(t, capability.ToolBroker)
	for _, passed := range []time.Duration{0, 10 * time.Second, 18 * time.Second} {
		w.now = start.Add(passed)
		got, err := w.exchange(t, toolBroker, token, capability.FileBroker)
		if err != nil {
			t.Fatal(err)
		}
		if claimed := expiryOf(t, token); got.ExpiresAt.After(claimed) {
			t.Errorf("after %v: ends at %v, the one that was shown at %v", passed, got.ExpiresAt, claimed)
		}
	}
	w.now = start.Add(19*time.Second + 900*time.Millisecond)
	w.signer.signed.Store(0)
	w.log.Reset()
	_, err := w.exchange(t, toolBroker, token, capability.FileBroker)
	w.notExchanged(t, err, fault.CapabilityExpired)
}

// Only the pairs of the list can be had: every other service, every other
// audience, and every other token of the same worker is refused.
func TestExchangeOfAnUnlistedPair(t *testing.T) {
	w := newWorld(t, nil)
	token := w.shown(t, capability.ToolBroker)
	for _, name := range []string{"controlplane", "filebroker", "statefacade", "modelproxy", "capability", "toolbroker2"} {
		_, err := w.exchange(t, identity.Service(td, name), token, capability.FileBroker)
		w.notExchanged(t, err, fault.CallerNotAllowed)
	}
	other := spiffeid.RequireTrustDomainFromString("other.test")
	for _, id := range []spiffeid.ID{subject, {}, identity.Service(other, "toolbroker")} {
		_, err := w.exchange(t, id, token, capability.FileBroker)
		w.notExchanged(t, err, fault.CallerNotAllowed)
	}
	for _, to := range append(capability.Audiences(), "", "everything") {
		if to == capability.FileBroker {
			continue
		}
		_, err := w.exchange(t, toolBroker, token, to)
		w.notExchanged(t, err, fault.AudienceMismatch)
	}
	for _, from := range capability.Audiences() {
		if from == capability.ToolBroker {
			continue
		}
		token := w.shown(t, from)
		_, err := w.exchange(t, toolBroker, token, capability.FileBroker)
		w.notExchanged(t, err, fault.AudienceMismatch)
	}
}

// What came out of an exchange cannot be exchanged again.
func TestExchangeOfANarrowedCapability(t *testing.T) {
	w := newWorld(t, nil)
	got, err := w.exchange(t, toolBroker, w.shown(t, capability.ToolBroker), capability.FileBroker)
	if err != nil {
		t.Fatal(err)
	}
	w.signer.signed.Store(0)
	w.log.Reset()
	_, err = w.exchange(t, toolBroker, got.Reveal(), capability.FileBroker)
	w.notExchanged(t, err, fault.AudienceMismatch)
}

func TestExchangeOfATokenThatIsWrong(t *testing.T) {
	w := newWorld(t, nil)
	token := w.shown(t, capability.ToolBroker)
	parts := strings.Split(token, ".")
	for name, tc := range map[string]struct {
		token string
		want  fault.Code
	}{
		"none":                {"", fault.CapabilityMissing},
		"not a token":         {"x", fault.CapabilityInvalid},
		"another signature":   {parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])), fault.CapabilityInvalid},
		"another payload":     {parts[0] + "." + parts[1][:len(parts[1])-4] + "AAAA." + parts[2], fault.CapabilityInvalid},
		"another world's":     {newWorld(t, nil).shown(t, capability.ToolBroker), fault.CapabilityInvalid},
		"without a signature": {parts[0] + "." + parts[1] + ".", fault.CapabilityInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.exchange(t, toolBroker, tc.token, capability.FileBroker)
			w.notExchanged(t, err, tc.want)
		})
	}
	t.Run("expired", func(t *testing.T) {
		w := newWorld(t, nil)
		w.now = start.Add(-2 * time.Hour) // minted for an hour, long before
		token := w.shown(t, capability.ToolBroker)
		w.now = start
		_, err := w.exchange(t, toolBroker, token, capability.FileBroker)
		w.notExchanged(t, err, fault.CapabilityExpired)
	})
}

// A token of a lease or run that is over is worth nothing, whoever shows it.
func TestExchangeAfterTheLeaseOrRunChanged(t *testing.T) {
	t.Run("replaced between admission and exchange", func(t *testing.T) {
		w := newWorld(t, nil)
		token, g := w.shown(t, capability.ToolBroker), w.grant(t, nil)
		w.replace(t)
		_, err := w.minter.Exchange(t.Context(), g, mint.ExchangeRequest{Holder: toolBroker, Token: token, Audience: capability.FileBroker})
		w.notExchanged(t, err, fault.StaleLease)
	})
	t.Run("an older generation's token under the new one's envelope", func(t *testing.T) {
		w := newWorld(t, nil)
		token := w.shown(t, capability.ToolBroker)
		w.replace(t)
		e := envelope(w)
		e.Generation = 3
		g, err := w.guard.Admit(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.minter.Exchange(t.Context(), g, mint.ExchangeRequest{Holder: toolBroker, Token: token, Audience: capability.FileBroker})
		w.notExchanged(t, err, fault.CapabilityScope)
	})
	t.Run("the end is decided", func(t *testing.T) {
		w := newWorld(t, nil)
		token := w.shown(t, capability.ToolBroker)
		if _, err := w.writer.SetEnd(t.Context(), w.grant(t, nil), binding.End{Kind: binding.EndCancelling, Reason: "client_request"}); err != nil {
			t.Fatal(err)
		}
		_, err := w.exchange(t, toolBroker, token, capability.FileBroker)
		w.notExchanged(t, err, fault.Cancelled)
	})
	t.Run("another instance holds the lease", func(t *testing.T) {
		w := newWorld(t, nil)
		token := w.shown(t, capability.ToolBroker)
		if _, err := w.writer.UpdateLease(t.Context(), bindingID, 1, 2, func(l *binding.Lease) { l.InstanceUID = "instance-2" }); err != nil {
			t.Fatal(err)
		}
		_, err := w.exchange(t, toolBroker, token, capability.FileBroker)
		w.notExchanged(t, err, fault.CapabilityInvalid)
	})
}

func expiryOf(t *testing.T, token string) time.Time {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Expiry int64 `json:"exp"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	return time.Unix(p.Expiry, 0)
}
