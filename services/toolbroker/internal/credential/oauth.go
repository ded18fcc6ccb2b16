package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"cofferdam.dev/services/toolbroker/internal/secretfile"
)

// maxTokenResponse bounds the answer of a token endpoint, in bytes.
const maxTokenResponse = 64 << 10

// ClientCredentials is a grant of OAuth 2.0 (RFC 6749, 4.4): the client
// authenticates itself with HTTP Basic and gets a token for itself.
type ClientCredentials struct {
	// Client sends the request. It follows no redirect.
	Client *http.Client
	// TokenURL is the token endpoint.
	TokenURL string
	ClientID string
	// SecretFile has the client's secret. It is read for each fetch.
	SecretFile string
	Scopes     []string
	// Resource is the target for which the token is (RFC 8707); empty names none.
	Resource string
	Now      func() time.Time
}

// Keep implements Source.
func (*ClientCredentials) Keep() time.Duration { return 5 * time.Minute }

// Fetch implements Source.
func (c *ClientCredentials) Fetch(ctx context.Context) (Token, error) {
	secret, err := secretfile.Read(c.SecretFile)
	if err != nil {
		return Token{}, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(c.Scopes) > 0 {
		form.Set("scope", strings.Join(c.Scopes, " "))
	}
	if c.Resource != "" {
		form.Set("resource", c.Resource)
	}
	asked := c.Now()
	raw, err := askEndpoint(ctx, c.Client, c.TokenURL, c.ClientID, secret, form)
	if err != nil {
		return Token{}, err
	}
	return parseToken(raw, asked)
}

// askEndpoint posts a form to a token endpoint and gives what it answers to a
// request that it granted.
func askEndpoint(ctx context.Context, client *http.Client, tokenURL, clientID, secret string, form url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, tokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errors.New("the token endpoint cannot be asked")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(clientID), url.QueryEscape(secret)) // RFC 6749, 2.3.1
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the token endpoint: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxTokenResponse+1))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, fmt.Errorf("the token endpoint: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the token endpoint: HTTP %d", res.StatusCode) // what it says may quote the request
	}
	if kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, errors.New("the token endpoint did not answer with JSON")
	}
	if len(raw) > maxTokenResponse {
		return nil, errNoOAuth
	}
	return raw, nil
}

var errNoOAuth = errors.New("the token endpoint answered in no form of OAuth 2.0")

// parseToken reads the answer of a token endpoint (RFC 6749, 5.1). Fields that do
// not concern this client may be anything.
func parseToken(raw []byte, asked time.Time) (Token, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return Token{}, errNoOAuth
	}
	var t Token
	var kind string
	if json.Unmarshal(fields["access_token"], &t.Value) != nil || json.Unmarshal(fields["token_type"], &kind) != nil {
		return Token{}, errNoOAuth
	}
	if !strings.EqualFold(kind, "bearer") {
		return Token{}, errors.New("the token endpoint gave a token of another type than bearer")
	}
	if life, given := fields["expires_in"]; given && string(life) != "null" {
		var seconds json.Number // some send it as text
		if json.Unmarshal(life, &seconds) != nil {
			return Token{}, errNoOAuth
		}
		n, err := seconds.Float64()
		if err != nil || n <= 0 || n > 10*365*24*3600 {
			return Token{}, errors.New("the token endpoint gave a token with a life of no use")
		}
		t.Expires = asked.Add(time.Duration(n * float64(time.Second)))
	}
	return t, nil
}
