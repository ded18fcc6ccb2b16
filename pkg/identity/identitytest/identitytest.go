// Package identitytest gives tests identities: an authority in memory, and sources that are rotated by hand. It needs no
// socket, no file and no goroutine.
//
//	domain := identitytest.New(t)
//	server := domain.Source(t, domain.Service("controlplane"))
//	client := domain.Source(t, domain.Sandbox("i-1"))
//	tlsConfig := identity.ServerTLS(server, identity.AllowList{identity.Exactly(client.ID())})
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"cofferdam.dev/pkg/identity"
)

// TrustDomain is the trust domain of [New].
const TrustDomain = "cofferdam.test"

const lifetime = time.Hour // of SVIDs and authorities

// Domain is a trust domain with its authorities. It is safe for concurrent use.
type Domain struct {
	td spiffeid.TrustDomain

	mu          sync.Mutex
	authorities []authority // the last one signs, all are trusted
	sources     []*Source
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes the trust domain that a test runs in.
func New(t testing.TB) *Domain {
	t.Helper()
	return NewDomain(t, TrustDomain)
}

// NewDomain makes a trust domain of any name, also of one that exists already: its authority is another one, so that its
// identities are copies that nobody else signed.
func NewDomain(t testing.TB, name string) *Domain {
	t.Helper()
	td, err := spiffeid.TrustDomainFromString(name)
	if err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	d := &Domain{td: td}
	d.addAuthority(t)
	return d
}

// TrustDomain returns the trust domain.
func (d *Domain) TrustDomain() spiffeid.TrustDomain { return d.td }

// Service returns the SPIFFE ID of a service.
func (d *Domain) Service(name string) spiffeid.ID { return identity.Service(d.td, name) }

// Sandbox returns the SPIFFE ID of an instance of a sandbox.
func (d *Domain) Sandbox(instanceUID string) spiffeid.ID { return identity.Sandbox(d.td, instanceUID) }

// Source returns a source with the given ID, which may be any at all. It is closed at the end of the test.
func (d *Domain) Source(t testing.TB, id spiffeid.ID) *Source {
	t.Helper()
	s := &Source{id: id}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewLocked(t, s)
	d.sources = append(d.sources, s)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Expired returns a source that shows an SVID which ran out a minute ago. A source that was opened with identity.Open
// would not show it; a peer that is wrong or evil does.
func (d *Domain) Expired(t testing.TB, id spiffeid.ID) *Source {
	t.Helper()
	now := time.Now()
	return d.fixed(t, id, now.Add(-lifetime), now.Add(-time.Minute))
}

// NotYetValid returns a source that shows an SVID which begins in ten minutes.
func (d *Domain) NotYetValid(t testing.TB, id spiffeid.ID) *Source {
	t.Helper()
	now := time.Now()
	return d.fixed(t, id, now.Add(10*time.Minute), now.Add(lifetime))
}

// SelfSigned returns a source that shows a certificate with the given ID, signed by its own key instead of the
// authority, and that trusts this trust domain.
func (d *Domain) SelfSigned(t testing.TB, id spiffeid.ID) *Source {
	t.Helper()
	key := newKey(t)
	now := time.Now()
	tmpl := leaf(t, id, now.Add(-time.Minute), now.Add(lifetime))
	return &Source{id: id, bundle: d.bundle(), svid: &x509svid.SVID{
		ID: id, PrivateKey: key, Certificates: []*x509.Certificate{sign(t, tmpl, tmpl, key, key)},
	}}
}

// Rotate gives every source a new SVID. The authorities stay.
func (d *Domain) Rotate(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sources {
		d.renewLocked(t, s)
	}
}

// RotateCA makes a new authority, which is trusted beside the old ones and signs from now on, and gives every source a
// new SVID and the new bundle.
func (d *Domain) RotateCA(t testing.TB) {
	t.Helper()
	d.addAuthority(t)
	d.Rotate(t)
}

// ForgetOldCAs leaves only the authority that signs. Every source gets the new bundle; what the others signed is not
// trusted any more.
func (d *Domain) ForgetOldCAs(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.authorities = d.authorities[len(d.authorities)-1:]
	for _, s := range d.sources {
		s.set(nil, d.bundleLocked())
	}
}

// PeerState returns the state of a server connection whose peer proved that it is id, for handlers under test that get
// no real connection.
func (d *Domain) PeerState(t testing.TB, id spiffeid.ID) *tls.ConnectionState {
	t.Helper()
	svid, err := d.Source(t, id).SVID()
	if err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	chains, err := svid.Certificates[0].Verify(x509.VerifyOptions{
		Roots: pool(d.bundle()), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	return &tls.ConnectionState{
		Version: tls.VersionTLS13, HandshakeComplete: true, NegotiatedProtocol: "h2",
		PeerCertificates: svid.Certificates, VerifiedChains: chains,
	}
}

// fixed returns a source that no rotation touches.
func (d *Domain) fixed(t testing.TB, id spiffeid.ID, from, to time.Time) *Source {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Source{id: id, svid: d.issueLocked(t, id, from, to), bundle: d.bundleLocked()}
}

func (d *Domain) addAuthority(t testing.TB) {
	t.Helper()
	key := newKey(t)
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: d.td.Name()},
		NotBefore: now.Add(-2 * lifetime), NotAfter: now.Add(2 * lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs: []*url.URL{d.td.ID().URL()},
	}
	cert := sign(t, tmpl, tmpl, key, key)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.authorities = append(d.authorities, authority{cert: cert, key: key})
}

func (d *Domain) renewLocked(t testing.TB, s *Source) {
	t.Helper()
	now := time.Now()
	s.set(d.issueLocked(t, s.id, now.Add(-time.Minute), now.Add(lifetime)), d.bundleLocked())
}

func (d *Domain) issueLocked(t testing.TB, id spiffeid.ID, from, to time.Time) *x509svid.SVID {
	t.Helper()
	a := d.authorities[len(d.authorities)-1]
	key := newKey(t)
	cert := sign(t, leaf(t, id, from, to), a.cert, key, a.key)
	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{cert}, PrivateKey: key}
}

func (d *Domain) bundle() *x509bundle.Bundle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bundleLocked()
}

func (d *Domain) bundleLocked() *x509bundle.Bundle {
	b := x509bundle.New(d.td)
	for _, a := range d.authorities {
		b.AddX509Authority(a.cert)
	}
	return b
}

func leaf(t testing.TB, id spiffeid.ID, from, to time.Time) *x509.Certificate {
	t.Helper()
	return &x509.Certificate{
		SerialNumber: serial(t), NotBefore: from, NotAfter: to, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{id.URL()},
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	return n
}

func sign(t testing.TB, tmpl, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatalf("identitytest: %v", err)
	}
	return cert
}

func pool(b *x509bundle.Bundle) *x509.CertPool {
	p := x509.NewCertPool()
	for _, a := range b.X509Authorities() {
		p.AddCert(a)
	}
	return p
}
