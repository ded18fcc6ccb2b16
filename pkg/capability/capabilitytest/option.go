package capabilitytest

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
)

// Option changes one thing about a token, usually for the worse.
type Option func(*Token)

// WithType sets typ.
func WithType(typ string) Option { return WithHeader("typ", typ) }

// WithKeyID sets kid.
func WithKeyID(kid string) Option { return WithHeader("kid", kid) }

// WithHeader sets a member of the header.
func WithHeader(name string, value any) Option {
	return func(t *Token) { t.header[name] = value }
}

// WithoutHeader leaves out a member of the header.
func WithoutHeader(name string) Option {
	return func(t *Token) { delete(t.header, name) }
}

// WithRawHeader signs these bytes in place of the header; format gets the kid of
// the Minter for its one %s.
func WithRawHeader(format string) Option {
	return func(t *Token) { t.rawHeader = fmt.Appendf(nil, format, t.minter.kid) }
}

// WithClaim sets a claim to any JSON value.
func WithClaim(name string, value any) Option {
	return func(t *Token) { t.payload[name] = value }
}

// WithoutClaim leaves out a claim.
func WithoutClaim(name string) Option {
	return func(t *Token) { delete(t.payload, name) }
}

// WithPayload signs these bytes in place of the claims.
func WithPayload(payload []byte) Option {
	return func(t *Token) { t.raw = payload }
}

// WithKey signs with another key, under the Minter's kid.
func WithKey(key ed25519.PrivateKey) Option {
	return func(t *Token) {
		t.sign = func(input []byte) []byte { return ed25519.Sign(key, input) }
	}
}

// WithForeignKey signs with a fresh key, under the Minter's kid.
func WithForeignKey() Option {
	return func(t *Token) { WithKey(newKey(t.minter.tb))(t) }
}

// WithAlgNone is an unsigned token (RFC 7519, section 6).
func WithAlgNone() Option {
	return func(t *Token) {
		t.header["alg"] = "none"
		t.sign = func([]byte) []byte { return nil }
	}
}

// WithHS256 is the attack on verifiers that believe alg: a MAC whose secret is
// the public key.
func WithHS256() Option {
	return func(t *Token) {
		t.header["alg"] = "HS256"
		pub, ok := t.minter.key.Public().(ed25519.PublicKey)
		if !ok {
			t.minter.tb.Fatal("key has no public half")
		}
		t.sign = func(input []byte) []byte {
			mac := hmac.New(sha256.New, pub)
			mac.Write(input)
			return mac.Sum(nil)
		}
	}
}

// WithRS256 is signed by an RSA key of its own.
func WithRS256() Option {
	return func(t *Token) {
		t.header["alg"] = "RS256"
		t.sign = func(input []byte) []byte {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				t.minter.tb.Fatalf("RSA key: %v", err)
			}
			sum := sha256.Sum256(input)
			sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
			if err != nil {
				t.minter.tb.Fatalf("RSA signature: %v", err)
			}
			return sig
		}
	}
}

// WithEdit changes the finished compact form.
func WithEdit(edit func(compact string) string) Option {
	return func(t *Token) { t.after = edit }
}
