package capability

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/strictjson"
)

// What the header of every capability says.
const (
	// TokenType is the typ of a capability. It keeps every other JWT of the
	// issuer's key from being taken for one.
	TokenType = "cap+jwt"
	// AssertionType is the typ of an assertion about the subject of a run, which the
	// same keys sign for a token endpoint (RFC 8693) and which is no capability.
	AssertionType = "subject-assertion+jwt"
	// Algorithm is the only alg: EdDSA with Ed25519.
	Algorithm = jose.EdDSA
)

const (
	maxHeaderBytes = 512
	signatureBytes = 64
)

// header is the whole protected header: a member that is not here is refused.
type header struct {
	Type      string `json:"typ"`
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

// parseToken takes a token apart before anything of it is believed, and gives
// the kid to look the key up by. Base64 is strict here: what go-jose lets
// through, line breaks and stray bits at the end, would give one capability many
// spellings.
func parseToken(token string) (signed *jose.JSONWebSignature, kid string, err error) {
	if len(token) > MaxTokenBytes {
		return nil, "", errors.New("token is larger than 8 KiB")
	}
	parts := strings.SplitN(token, ".", 4)
	if len(parts) != 3 {
		return nil, "", errors.New("not a compact JWS")
	}
	if len(parts[0]) > maxHeaderBytes {
		return nil, "", errors.New("header is larger than 512 bytes")
	}
	raw := make([][]byte, len(parts))
	for i, p := range parts {
		if raw[i], err = decodeSegment(p); err != nil {
			return nil, "", err
		}
	}
	if len(raw[2]) != signatureBytes {
		return nil, "", errors.New("signature is not 64 bytes")
	}
	var h header
	if err := strictjson.Unmarshal(raw[0], &h, strictjson.Options{MaxBytes: maxHeaderBytes, MaxDepth: 1, RequireFields: true}); err != nil {
		return nil, "", err
	}
	switch {
	case h.Type != TokenType:
		return nil, "", errors.New("typ is not cap+jwt")
	case h.Algorithm != string(Algorithm):
		return nil, "", errors.New("alg is not EdDSA")
	case !isName(h.KeyID):
		return nil, "", errors.New("kid is missing or malformed")
	}
	signed, err = jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{Algorithm})
	if err != nil {
		return nil, "", errors.New("not a compact JWS")
	}
	return signed, h.KeyID, nil
}

func decodeSegment(s string) ([]byte, error) {
	if !madeOf(s, "_-") {
		return nil, errors.New("not base64url")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, errors.New("not base64url")
	}
	return raw, nil
}
