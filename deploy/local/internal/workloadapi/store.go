package workloadapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/pkg/strictjson"
)

const (
	maxStored      = 256 << 10 // bytes of the file
	maxAuthorities = 8
)

// storedChain is the form of a chain in its file.
type storedChain struct {
	TrustDomain string            `json:"trust_domain"`
	Authorities []storedAuthority `json:"authorities"`
	// Signer is the index of the one that signs.
	Signer int `json:"signer"`
}

// storedAuthority has everything in DER; the keys are PKCS#8.
type storedAuthority struct {
	Certificate []byte    `json:"certificate"`
	Key         []byte    `json:"key"`
	JWTKey      []byte    `json:"jwt_key"`
	Born        time.Time `json:"born"`
}

// loadChain reads the chain from its file, or gives an empty one where there is no file.
func loadChain(cfg Config) (chain, error) {
	empty := chain{td: cfg.TrustDomain, ttl: cfg.CATTL}
	raw, err := datadir.ReadKey(cfg.Authorities, maxStored)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return chain{}, fmt.Errorf("workloadapi: authorities: %w", err)
	}
	c, err := decodeChain(raw, empty)
	if err != nil {
		return chain{}, fmt.Errorf("workloadapi: authorities: %s: %w; without the file new ones are made, and what was issued before is trusted no more", cfg.Authorities, err)
	}
	return c, nil
}

// decodeChain reads a chain into an empty one. Its errors hold nothing of what it read.
func decodeChain(raw []byte, c chain) (chain, error) {
	var s storedChain
	if err := strictjson.Unmarshal(raw, &s, strictjson.Options{MaxBytes: maxStored, RequireFields: true}); err != nil {
		return chain{}, err
	}
	switch {
	case s.TrustDomain != c.td.Name():
		return chain{}, errors.New("it is of another trust domain")
	case len(s.Authorities) == 0 || len(s.Authorities) > maxAuthorities:
		return chain{}, fmt.Errorf("1 to %d authorities are possible", maxAuthorities)
	case s.Signer < 0 || s.Signer >= len(s.Authorities):
		return chain{}, errors.New("it names no authority that signs")
	}
	for i, a := range s.Authorities {
		authority, err := a.decode(c.td.ID().String())
		if err != nil {
			return chain{}, fmt.Errorf("authorities[%d]: %w", i, err)
		}
		c.all = append(c.all, authority)
	}
	c.signer = c.all[s.Signer]
	return c, nil
}

func (s storedAuthority) decode(id string) (*authority, error) {
	cert, err := x509.ParseCertificate(s.Certificate)
	if err != nil {
		return nil, errors.New("its certificate is none")
	}
	if !cert.IsCA || len(cert.URIs) != 1 || cert.URIs[0].String() != id {
		return nil, errors.New("its certificate is not an authority's of the trust domain")
	}
	if s.Born.Before(cert.NotBefore) || !s.Born.Before(cert.NotAfter) {
		return nil, errors.New("it was not born within the time of its certificate")
	}
	key, err := decodeKey(s.Key)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("its key is not its certificate's")
	}
	jwtKey, err := decodeKey(s.JWTKey)
	if err != nil {
		return nil, err
	}
	return withCertificate(cert, key, jwtKey, s.Born), nil
}

func decodeKey(der []byte) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("a key is not in PKCS#8") // the cause may say something of it
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("a key is not of the curve P-256")
	}
	return private, nil
}

// save writes the chain in the place of the file.
func (c chain) save(path string) error {
	s := storedChain{TrustDomain: c.td.Name()}
	for i, a := range c.all {
		if a == c.signer {
			s.Signer = i
		}
		key, err := x509.MarshalPKCS8PrivateKey(a.key)
		if err != nil {
			return fmt.Errorf("workloadapi: authorities: %w", err)
		}
		jwtKey, err := x509.MarshalPKCS8PrivateKey(a.jwtKey)
		if err != nil {
			return fmt.Errorf("workloadapi: authorities: %w", err)
		}
		s.Authorities = append(s.Authorities, storedAuthority{Certificate: a.cert.Raw, Key: key, JWTKey: jwtKey, Born: a.born})
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("workloadapi: authorities: %w", err)
	}
	if err := datadir.Write(path, append(raw, '\n')); err != nil {
		return fmt.Errorf("workloadapi: authorities: %w", err)
	}
	return nil
}
