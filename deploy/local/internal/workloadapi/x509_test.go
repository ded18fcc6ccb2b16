package workloadapi

import (
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"cofferdam.dev/pkg/identity"
)

func TestEachSocketIsOneIdentity(t *testing.T) {
	s := newServer(t, nil)
	for id, path := range map[spiffeid.ID]string{broker: register(t, s, broker), sandbox: register(t, s, sandbox)} {
		svids, err := dial(t, path).FetchX509SVIDs(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(svids) != 1 || svids[0].ID != id {
			t.Fatalf("the socket of %q issued %v", id, svids)
		}
		bundles, err := dial(t, path).FetchX509Bundles(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		verified, _, err := x509svid.Verify(svids[0].Certificates, bundles)
		if err != nil || verified != id {
			t.Errorf("verified as %q, %v", verified, err)
		}
		leaf := svids[0].Certificates[0]
		if left := time.Until(leaf.NotAfter); left > time.Hour+time.Second || left < 59*time.Minute {
			t.Errorf("the SVID lives for %s, want an hour", left)
		}
	}
}

// Two processes that got their identities here know each other: this is what the package is for.
func TestIdentitiesOpenConnections(t *testing.T) {
	s := newServer(t, nil)
	open := func(id spiffeid.ID) identity.Source {
		src, err := identity.Open(bounded(t), identity.Config{WorkloadAPI: "unix://" + register(t, s, id), ID: id}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		})
		return src
	}
	server, client := open(broker), open(sandbox)
	a, b := net.Pipe()
	served := make(chan error, 1)
	go func() {
		conn := tls.Server(a, identity.ServerTLS(server, identity.AllowList{identity.AnySandbox(td)}))
		_, err := io.WriteString(conn, "welcome")
		served <- errors.Join(err, conn.Close())
	}()
	conn := tls.Client(b, identity.ClientTLS(client, broker))
	if got, err := io.ReadAll(conn); err != nil || string(got) != "welcome" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := errors.Join(<-served, b.Close()); err != nil {
		t.Error(err)
	}
}

func TestRotationIsPushed(t *testing.T) {
	now := newClock()
	s := newServer(t, func(c *Config) { c.Now = now.Now })
	src := source(t, register(t, s, sandbox))
	first, err := src.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	unchanged := s.changed
	rotate(t, s, now.add(29*time.Minute))
	if s.changed != unchanged {
		t.Error("an SVID was replaced before half of its lifetime")
	}
	rotate(t, s, now.add(2*time.Minute))
	if err := src.WaitUntilUpdated(bounded(t)); err != nil {
		t.Fatal(err)
	}
	second, err := src.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	if second.ID != sandbox || !second.Certificates[0].NotAfter.After(first.Certificates[0].NotAfter) {
		t.Errorf("the new SVID of %q ends at %s, the old one at %s", second.ID, second.Certificates[0].NotAfter, first.Certificates[0].NotAfter)
	}
	if old, ok := first.PrivateKey.Public().(*ecdsa.PublicKey); !ok || old.Equal(second.PrivateKey.Public()) {
		t.Error("the key is the same")
	}
}

func TestAuthorityRotationIsPushed(t *testing.T) {
	now := newClock()
	s := newServer(t, func(c *Config) { c.Now, c.X509TTL, c.CATTL = now.Now, 6*time.Hour, 24*time.Hour })
	src := source(t, register(t, s, sandbox))
	authorities := func() int {
		bundle, err := src.GetX509BundleForTrustDomain(td)
		if err != nil {
			t.Fatal(err)
		}
		return len(bundle.X509Authorities())
	}
	for _, step := range []struct {
		name  string
		after time.Duration
		want  int
	}{
		{"SVID replaced", 6 * time.Hour, 1},
		{"successor published", 6 * time.Hour, 2},
		{"successor signs", 6 * time.Hour, 2},
		{"old one gone, next published", 6 * time.Hour, 2},
	} {
		rotate(t, s, now.add(step.after))
		if err := src.WaitUntilUpdated(bounded(t)); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := authorities(); got != step.want {
			t.Errorf("%s: %d authorities, want %d", step.name, got, step.want)
		}
	}
}

// Serve does by itself what the other tests do by hand.
func TestServeRotates(t *testing.T) {
	s := newServer(t, func(c *Config) { c.X509TTL, c.JWTTTL, c.CATTL = time.Second, time.Second, 4*time.Second })
	serveCtx := bounded(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(serveCtx) }()
	src := source(t, register(t, s, sandbox))
	first, err := src.GetX509BundleForTrustDomain(td)
	if err != nil {
		t.Fatal(err)
	}
	old := first.X509Authorities()[0]
	for {
		if err := src.WaitUntilUpdated(bounded(t)); err != nil {
			t.Fatal(err)
		}
		bundle, err := src.GetX509BundleForTrustDomain(td)
		if err != nil {
			t.Fatal(err)
		}
		svid, err := src.GetX509SVID()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := x509svid.Verify(svid.Certificates, bundle); err != nil {
			t.Error(err)
		}
		if len(bundle.X509Authorities()) > 1 && svid.Certificates[0].NotBefore.After(old.NotBefore) {
			break
		}
	}
	s.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
