// Package issuer is the token issuer of one machine. It stands in for an OIDC
// provider: it signs what `cofferdam token` prints, and publishes the key with
// which the control plane verifies it.
package issuer

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"cofferdam.dev/deploy/local/internal/datadir"
)

// What stands in every token, and what the control plane is told to expect.
const (
	// Name is the iss.
	Name = "https://issuer.cofferdam.local"
	// Audience is the aud.
	Audience = "cofferdam"
	// linkSuffix after Audience is the aud of the codes of links: the control plane
	// takes such a code for no token.
	linkSuffix = "-ui-link"
	// Algorithm is how they are signed.
	Algorithm = string(jose.EdDSA)
	// Organization is the org unless something else is asked for.
	Organization = "default"
)

// Bounds of a token.
const (
	// DefaultTTL and MaxTTL are how long a token lives.
	DefaultTTL = time.Hour
	MaxTTL     = 24 * time.Hour
	// maxName bounds subject and organization, in bytes, as the control plane does.
	maxName = 256

	maxKeyBytes = 4 << 10
)

// Issuer signs tokens.
type Issuer struct {
	key    jose.JSONWebKey
	signer jose.Signer
	now    func() time.Time
}

// Open reads the key of the data folder, made if there is none, and writes the
// set with its public half.
func Open(d datadir.Dir) (*Issuer, error) {
	raw, err := datadir.Keep(d.IssuerKey(), maxKeyBytes, newKey)
	if err != nil {
		return nil, fmt.Errorf("issuer key: %w", err)
	}
	i, err := parse(raw)
	if err != nil {
		return nil, err
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.key.Public()}})
	if err != nil {
		return nil, fmt.Errorf("issuer key: %w", err)
	}
	return i, datadir.Write(d.IssuerJWKS(), append(set, '\n'))
}

// Load reads the key of a data folder that has one.
func Load(d datadir.Dir) (*Issuer, error) {
	raw, err := datadir.ReadKey(d.IssuerKey(), maxKeyBytes)
	if err != nil {
		return nil, fmt.Errorf("issuer key: %w", err)
	}
	return parse(raw)
}

func newKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	key := jose.JSONWebKey{Key: private, Algorithm: Algorithm, Use: "sig"}
	thumb, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, err
	}
	key.KeyID = base64.RawURLEncoding.EncodeToString(thumb)
	raw, err := json.Marshal(key)
	return append(raw, '\n'), err
}

// parse reads a private key. Its errors say nothing of what stands in it.
func parse(raw []byte) (*Issuer, error) {
	i := &Issuer{now: time.Now}
	if json.Unmarshal(raw, &i.key) != nil {
		return nil, errors.New("issuer key: not a JSON Web Key")
	}
	if private, ok := i.key.Key.(ed25519.PrivateKey); !ok || len(private) != ed25519.PrivateKeySize || i.key.KeyID == "" {
		return nil, errors.New("issuer key: not an Ed25519 private key with an id")
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: i.key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("issuer key: %w", err)
	}
	i.signer = signer
	return i, nil
}

// Request says whom a token speaks for.
type Request struct {
	// Subject is who calls, 1 to 256 bytes.
	Subject string
	// Organization of the subject, at most 256 bytes; empty is Organization.
	Organization string
	// Link makes the code of a link to the page for people, which is good for one use
	// there and for nothing else.
	Link bool
	// TTL is how long the token lives, 1 s to MaxTTL; zero is DefaultTTL.
	TTL time.Duration
}

// Token signs a token.
func (i *Issuer) Token(r Request) (string, error) {
	if r.Organization == "" {
		r.Organization = Organization
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	var errs []error
	if r.Subject == "" || len(r.Subject) > maxName || len(r.Organization) > maxName {
		errs = append(errs, fmt.Errorf("subject: 1 to %d bytes; organization: at most as many", maxName))
	}
	if r.TTL < time.Second || r.TTL > MaxTTL {
		errs = append(errs, fmt.Errorf("ttl: %v is not between 1s and %v", r.TTL, MaxTTL))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	now := i.now()
	audience := Audience
	if r.Link {
		audience += linkSuffix
	}
	claims := jwt.Claims{
		Issuer: Name, Subject: r.Subject, Audience: jwt.Audience{audience}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(r.TTL)),
	}
	own := struct {
		Organization string `json:"org"`
	}{r.Organization}
	return jwt.Signed(i.signer).Claims(claims).Claims(own).Serialize()
}

// Header is the whole line of HTTP that shows a token, for `curl -H @FILE`.
func Header(token string) []byte { return []byte("Authorization: Bearer " + token + "\n") }
