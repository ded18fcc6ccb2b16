package workloadapi

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// At every moment of several lives of authorities, any two processes understand each other, of which one is a push
// behind the other: neither meets an SVID whose authority it does not know yet or any more.
func TestAuthoritiesOverlap(t *testing.T) {
	const step = 15 * time.Minute
	for _, ttl := range []time.Duration{time.Hour, 6 * time.Hour} {
		t.Run(ttl.String(), func(t *testing.T) {
			now := newClock()
			s := newServer(t, func(c *Config) { c.Now, c.X509TTL, c.CATTL = now.Now, ttl, 24*time.Hour })
			register(t, s, sandbox)
			before := snapshot(t, s)
			signers := map[*authority]bool{}
			for range 5 * 24 * time.Hour / step {
				at := now.add(step)
				rotate(t, s, at)
				after := snapshot(t, s)
				for name, pair := range map[string]struct{ svid, bundle state }{
					"both new":              {after, after},
					"new SVID, old bundle":  {after, before},
					"old SVID, new bundle":  {before, after},
					"old SVID, old bundles": {before, before},
				} {
					if _, _, err := x509svid.Verify(pair.svid.svid, pair.bundle.bundle, x509svid.WithTime(at)); err != nil {
						t.Fatalf("%s, after %s: %v", name, at.Sub(s.chain.all[0].born), err)
					}
				}
				if n := len(s.chain.all); n > 3 {
					t.Fatalf("%d authorities", n)
				}
				signers[s.chain.signer] = true
				before = after
			}
			if len(signers) < 5 {
				t.Errorf("%d authorities signed in five of their lives", len(signers))
			}
		})
	}
}

// A machine that slept past everything comes back with an authority that is alive.
func TestRotationAfterLongSleep(t *testing.T) {
	for _, slept := range []time.Duration{13 * time.Hour, 19 * time.Hour, 25 * time.Hour, 30 * 24 * time.Hour} {
		t.Run(slept.String(), func(t *testing.T) {
			now := newClock()
			s := newServer(t, func(c *Config) { c.Now = now.Now })
			register(t, s, sandbox)
			at := now.add(slept)
			rotate(t, s, at)
			got := snapshot(t, s)
			if _, _, err := x509svid.Verify(got.svid, got.bundle, x509svid.WithTime(at)); err != nil {
				t.Error(err)
			}
			if left := got.svid[0].NotAfter.Sub(at); left < time.Hour-time.Second {
				t.Errorf("the SVID has %s left", left)
			}
			for _, a := range s.chain.all {
				if !a.dies.After(at) {
					t.Error("a dead authority is trusted")
				}
			}
		})
	}
}

// An SVID of one second, issued in the last millisecond of one, lives for a second and not for a millisecond.
func TestLifetimesAreNotCutToWholeSeconds(t *testing.T) {
	for _, fraction := range []time.Duration{0, time.Nanosecond, 500 * time.Millisecond, 999 * time.Millisecond} {
		now := time.Now().Truncate(time.Second).Add(fraction)
		a, err := newAuthority(td, now, 4*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		svid, err := a.issue(sandbox, now, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(svid.cert)
		if err != nil {
			t.Fatal(err)
		}
		if lives := cert.NotAfter.Sub(now); lives < time.Second || lives >= 2*time.Second {
			t.Errorf("%s after a whole second: the SVID lives for %s", fraction, lives)
		}
		if lives := a.dies.Sub(now); lives < 4*time.Second || lives >= 5*time.Second {
			t.Errorf("%s after a whole second: the authority lives for %s", fraction, lives)
		}
	}
}

// state is what a process has that just heard from the server.
type state struct {
	svid   []*x509.Certificate
	bundle *x509bundle.Bundle
}

func snapshot(t *testing.T, s *Server) state {
	t.Helper()
	v, err := s.view(s.pathOf(sandbox))
	if err != nil {
		t.Fatal(err)
	}
	svid, err := x509svid.ParseRaw(v.svid.cert, v.svid.key)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := x509bundle.ParseRaw(td, v.x509Bundle())
	if err != nil {
		t.Fatal(err)
	}
	return state{svid: slices.Clone(svid.Certificates), bundle: bundle}
}
