package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"cofferdam.dev/services/toolbroker/internal/secretfile"
)

// What RFC 8693 calls things.
const (
	grantTokenExchange = "urn:ietf:params:oauth:grant-type:token-exchange" //nolint:gosec // a name
	typeAccessToken    = "urn:ietf:params:oauth:token-type:access_token"   //nolint:gosec // a name
	typeJWT            = "urn:ietf:params:oauth:token-type:jwt"            //nolint:gosec // a name
)

// Assert gives an assertion about the subject for whom a call is made, to be shown
// to a token endpoint and to nobody else. It ends with ctx.
type Assert func(ctx context.Context, tokenURL string) (assertion string, err error)

type assertKey struct{}

// WithAssert is a context in which tokens can be fetched for a subject.
func WithAssert(ctx context.Context, a Assert) context.Context {
	return context.WithValue(ctx, assertKey{}, a)
}

// ErrNoAssertion says that nobody vouches for the subject. It is the failure of the
// call on whose behalf a token was wanted, and says nothing about the next one.
var ErrNoAssertion = errors.New("there is no assertion about the subject")

// TokenExchange is the grant of RFC 8693: the client authenticates itself with HTTP
// Basic, shows an assertion about the subject, and gets a token of the subject's
// for one target. The assertion comes with the context, see WithAssert: it is of
// the run that wants the token, and the token outlives that.
type TokenExchange struct {
	// Client sends the request. It follows no redirect.
	Client *http.Client
	// TokenURL is the token endpoint, and the audience of the assertions.
	TokenURL string
	ClientID string
	// SecretFile has the client's secret. It is read for each fetch.
	SecretFile string
	Scopes     []string
	// Resource and Audience name the target (RFC 8693, 2.1); empty names none.
	Resource, Audience string
	Now                func() time.Time
}

// Keep implements Source.
func (*TokenExchange) Keep() time.Duration { return time.Minute }

// Fetch implements Source.
func (c *TokenExchange) Fetch(ctx context.Context) (Token, error) {
	secret, err := secretfile.Read(c.SecretFile)
	if err != nil {
		return Token{}, err
	}
	assert, ok := ctx.Value(assertKey{}).(Assert)
	if !ok || assert == nil {
		return Token{}, ErrNoAssertion
	}
	assertion, err := assert(ctx, c.TokenURL)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrNoAssertion, err)
	}
	form := url.Values{
		"grant_type": {grantTokenExchange}, "subject_token": {assertion}, "subject_token_type": {typeJWT},
		"requested_token_type": {typeAccessToken},
	}
	for name, value := range map[string]string{"scope": strings.Join(c.Scopes, " "), "resource": c.Resource, "audience": c.Audience} {
		if value != "" {
			form.Set(name, value)
		}
	}
	asked := c.Now()
	raw, err := askEndpoint(ctx, c.Client, c.TokenURL, c.ClientID, secret, form)
	if err != nil {
		return Token{}, err
	}
	var kind struct {
		Issued string `json:"issued_token_type"`
	}
	if json.Unmarshal(raw, &kind) != nil || kind.Issued != typeAccessToken && kind.Issued != typeJWT {
		return Token{}, errors.New("the token endpoint gave something else than an access token")
	}
	return parseToken(raw, asked)
}
