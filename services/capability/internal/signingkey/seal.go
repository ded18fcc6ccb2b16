package signingkey

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/capability"
)

// How a signing key is encrypted: a JWE (RFC 7516) of its JWK (RFC 7517, section
// 7), with a key of 256 bits from the key file.
const (
	sealAlgorithm  = jose.A256GCMKW
	sealEncryption = jose.A256GCM
	sealKeyBytes   = 32
	sealedType     = "jwk+json"
)

// Sealer encrypts signing keys at rest, with the keys of the key file. The first
// one encrypts; all of them decrypt. However it is printed, only kids show.
type Sealer struct {
	path string
	keys []sealKey
}

// sealKey is one key of the file.
type sealKey struct {
	id string
	// secret is a function because fmt prints fields without asking.
	secret func() []byte
}

func newSealKey(id string, secret []byte) sealKey {
	return sealKey{id: id, secret: func() []byte { return secret }}
}

// generateSealKey makes a key.
func generateSealKey() (sealKey, error) {
	secret := make([]byte, sealKeyBytes)
	if _, err := rand.Read(secret); err != nil {
		return sealKey{}, fmt.Errorf("key file: %w", err)
	}
	return newSealKey("kek-"+rand.Text(), secret), nil
}

// jwk is how it stands in the file.
func (k sealKey) jwk() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.secret(), KeyID: k.id, Algorithm: string(sealAlgorithm), Use: "enc"}
}

// primary is the kid of the key that encrypts.
func (s *Sealer) primary() string { return s.keys[0].id }

// Format implements fmt.Formatter for every verb.
func (s *Sealer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "key file "+s.path) }

// LogValue implements slog.LogValuer.
func (s *Sealer) LogValue() slog.Value { return slog.StringValue(s.primary()) }

// seal encrypts a signing key.
func (s *Sealer) seal(k Key) (string, error) {
	first := s.keys[0]
	enc, err := jose.NewEncrypter(sealEncryption, jose.Recipient{Algorithm: sealAlgorithm, Key: first.secret(), KeyID: first.id},
		(&jose.EncrypterOptions{}).WithContentType(sealedType))
	if err != nil {
		return "", errors.New("signing keys: the key file's first key cannot encrypt")
	}
	plain, err := jose.JSONWebKey{Key: k.private(), KeyID: k.id, Algorithm: string(capability.Algorithm), Use: "sig"}.MarshalJSON()
	if err != nil {
		return "", errors.New("signing keys: a key cannot be encoded") // the error could quote it
	}
	sealed, err := enc.Encrypt(plain)
	if err != nil {
		return "", errors.New("signing keys: a key cannot be encrypted")
	}
	return sealed.CompactSerialize()
}

// open decrypts the signing key of an entry, and makes sure that it is that one.
func (s *Sealer) open(e entry) (Key, error) {
	box, err := jose.ParseEncryptedCompact(e.Sealed, []jose.KeyAlgorithm{sealAlgorithm}, []jose.ContentEncryption{sealEncryption})
	if err != nil {
		return Key{}, fmt.Errorf("signing keys: %s is not sealed as it should be", e.ID)
	}
	for _, k := range s.keys {
		if k.id != box.Header.KeyID || k.id != e.SealedBy {
			continue
		}
		plain, err := box.Decrypt(k.secret())
		if err != nil {
			return Key{}, fmt.Errorf("signing keys: %s was changed, or sealed with another key than %s of %s", e.ID, k.id, s.path)
		}
		key, err := parse(plain)
		if err != nil || key.id != e.ID {
			return Key{}, fmt.Errorf("signing keys: what is sealed as %s is another key", e.ID)
		}
		return key, nil
	}
	return Key{}, fmt.Errorf("signing keys: %s was sealed with the key %q, which %s does not hold: put it there, after the one that is to seal from now on", e.ID, e.SealedBy, s.path)
}
