package workloadapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	// backdate is how far before now a certificate begins, for whoever reads another clock.
	backdate   = 10 * time.Second
	serialBits = 127
)

// authority signs X.509-SVIDs with one key and JWT-SVIDs with another.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	jwtKey *ecdsa.PrivateKey
	kid    string // of jwtKey

	born time.Time
	dies time.Time // what it signed is over by then
}

// chain is the authorities of a trust domain in the order in which they sign. One of them signs now; those before it are
// trusted until they die, and there is at most one behind it, which is trusted already.
type chain struct {
	td     spiffeid.TrustDomain
	ttl    time.Duration
	all    []*authority
	signer *authority
}

// advance brings the chain to now and reports whether other authorities are trusted than before. It works from any state
// and over any leap of the clock: a machine may have been asleep for days.
func (c *chain) advance(now time.Time) (changed bool, err error) {
	if c.signer == nil || !now.Before(c.publishAt()) && c.next() == nil {
		a, err := newAuthority(c.td, now, c.ttl)
		if err != nil {
			return false, err
		}
		c.all = append(c.all, a)
		changed = true
	}
	if c.signer == nil || !now.Before(c.handOverAt()) {
		c.signer = c.all[len(c.all)-1]
	}
	n := len(c.all)
	c.all = slices.DeleteFunc(c.all, func(a *authority) bool { return a != c.signer && !now.Before(a.dies) })
	return changed || len(c.all) != n, nil
}

// clone is a chain that can be advanced without c.
func (c chain) clone() chain {
	c.all = slices.Clone(c.all)
	return c
}

// publishAt is when the successor of the signer becomes trusted.
func (c *chain) publishAt() time.Time { return c.signer.born.Add(c.signer.lifetime() / 2) }

// handOverAt is when the successor of the signer begins to sign. Nothing that the signer signed may live longer than what
// is left of its own lifetime, which is why Config asks for four lifetimes of an SVID.
func (c *chain) handOverAt() time.Time { return c.signer.born.Add(c.signer.lifetime() / 4 * 3) }

// next is the authority behind the signer, or nil.
func (c *chain) next() *authority {
	if last := c.all[len(c.all)-1]; last != c.signer {
		return last
	}
	return nil
}

// lifetime is that of the authority, which may have been made under another configuration.
func (a *authority) lifetime() time.Duration { return a.dies.Sub(a.born) }

func newAuthority(td spiffeid.TrustDomain, now time.Time, ttl time.Duration) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("workloadapi: authority: %w", err)
	}
	jwtKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("workloadapi: authority: %w", err)
	}
	number, err := serial()
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: number,
		// The number tells authorities apart that would have the same name.
		Subject:   pkix.Name{Organization: []string{"Cofferdam"}, CommonName: td.Name(), SerialNumber: number.String()},
		NotBefore: now.Add(-backdate), NotAfter: wholeSecond(now.Add(ttl)),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs:     []*url.URL{td.ID().URL()},
	}
	cert, err := sign(tmpl, tmpl, key, key)
	if err != nil {
		return nil, err
	}
	return withCertificate(cert, key, jwtKey, now), nil
}

func withCertificate(cert *x509.Certificate, key, jwtKey *ecdsa.PrivateKey, born time.Time) *authority {
	digest := sha256.Sum256(cert.Raw)
	return &authority{
		cert: cert, key: key, jwtKey: jwtKey, kid: base64.RawURLEncoding.EncodeToString(digest[:12]),
		born: born, dies: cert.NotAfter,
	}
}

// svid is an X.509-SVID as the API sends it.
type svid struct {
	cert    []byte // DER
	key     []byte // PKCS#8
	renewAt time.Time
}

// issue makes an SVID with a new key. It lives for ttl, and not longer than the authority.
func (a *authority) issue(id spiffeid.ID, now time.Time, ttl time.Duration) (*svid, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("workloadapi: SVID: %w", err)
	}
	number, err := serial()
	if err != nil {
		return nil, err
	}
	cert, err := sign(&x509.Certificate{
		SerialNumber: number,
		Subject:      pkix.Name{Organization: []string{"Cofferdam"}},
		NotBefore:    now.Add(-backdate), NotAfter: a.end(now, ttl),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:                  []*url.URL{id.URL()},
	}, a.cert, key, a.key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("workloadapi: SVID: %w", err)
	}
	return &svid{cert: cert.Raw, key: pkcs8, renewAt: now.Add(cert.NotAfter.Sub(now) / 2)}, nil
}

// end is when something ends that the authority signs now for ttl.
func (a *authority) end(now time.Time, ttl time.Duration) time.Time {
	if end := wholeSecond(now.Add(ttl)); end.Before(a.dies) {
		return end
	}
	return a.dies
}

// wholeSecond rounds up. Certificates and tokens know only whole seconds, and would otherwise lose up to one.
func wholeSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); whole.Before(t) {
		return whole.Add(time.Second)
	}
	return t
}

func sign(tmpl, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), parentKey)
	if err != nil {
		return nil, fmt.Errorf("workloadapi: sign: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("workloadapi: sign: %w", err)
	}
	return cert, nil
}

func serial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("workloadapi: serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil // zero is not allowed
}
