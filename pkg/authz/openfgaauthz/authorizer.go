// Package openfgaauthz asks OpenFGA. The control plane and the ToolBroker link
// it; a worker never does.
package openfgaauthz

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	openfga "github.com/openfga/go-sdk"
	"github.com/openfga/go-sdk/client"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/fault"
)

const (
	// checkTimeout bounds one check. A slow answer is none: refused.
	checkTimeout = 2 * time.Second
	maxKeyBytes  = 4 << 10
)

// Config of the connection to OpenFGA.
type Config struct {
	URL     string
	StoreID string
	// ModelID is the authorization model that is asked; pinned, so that a model
	// that somebody else writes changes nothing.
	ModelID string
	// KeyFile holds the preshared key; empty for a server without one.
	KeyFile string
}

// Flags registers the flags that fill c.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.URL, "openfga-url", "", "URL of the OpenFGA HTTP API")
	fs.StringVar(&c.StoreID, "openfga-store-id", "", "id of the OpenFGA store")
	fs.StringVar(&c.ModelID, "openfga-model-id", "", "id of the authorization model in the store")
	fs.StringVar(&c.KeyFile, "openfga-key-file", "", "`file` with the preshared key of OpenFGA (default none)")
}

// Validate reports what is missing.
func (c *Config) Validate() error {
	var errs []error
	for _, v := range []struct{ flag, value string }{
		{"openfga-url", c.URL}, {"openfga-store-id", c.StoreID}, {"openfga-model-id", c.ModelID},
	} {
		if v.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", v.flag))
		}
	}
	return errors.Join(errs...)
}

// Authorizer checks relations.
type Authorizer struct{ fga *client.OpenFgaClient }

// New makes an Authorizer. It makes no connection.
func New(cfg Config) (*Authorizer, error) {
	header, err := authorization(cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	// Without RetryParams the SDK repeats nothing: a check is asked again by
	// whoever asked for what it guards. (With them it would repeat MinWaitInMs
	// times, and sleep in between whatever the context says.)
	fga, err := client.NewSdkClient(&client.ClientConfiguration{
		ApiUrl: cfg.URL, StoreId: cfg.StoreID, AuthorizationModelId: cfg.ModelID,
		DefaultHeaders: header, HTTPClient: httpClient(),
	})
	if err != nil {
		return nil, fmt.Errorf("openfga: %w", err)
	}
	return &Authorizer{fga: fga}, nil
}

// Check asks whether the subject has the relation to the object, which is as
// package authz writes it. It asks for higher consistency: a decision from a
// cache could outlive a revocation. Errors: access_denied, and
// dependency_unavailable when OpenFGA does not answer, which is a refusal too.
func (a *Authorizer) Check(ctx context.Context, subject, relation, object string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	res, err := a.fga.Check(ctx).
		Body(client.ClientCheckRequest{User: authz.UserID(subject), Relation: relation, Object: object}).
		Options(client.ClientCheckOptions{Consistency: openfga.CONSISTENCYPREFERENCE_HIGHER_CONSISTENCY.Ptr()}).
		Execute()
	switch {
	case err != nil:
		return fault.Wrap(reason(err), fault.DependencyUnavailable, "openfga.Check")
	case !res.GetAllowed():
		return fault.New(fault.AccessDenied, "openfga.Check")
	}
	return nil
}

// reason is why there is no decision, as far as it can be logged: what OpenFGA
// answers quotes the subject.
func reason(err error) error {
	type answered interface {
		error
		ResponseStatusCode() int
	}
	if a, ok := errors.AsType[answered](err); ok {
		return fmt.Errorf("openfga answered with status %d", a.ResponseStatusCode())
	}
	return err
}

// authorization is the header that carries the key. The SDK's own credentials
// have no effect beside an HTTP client of ours.
func authorization(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("openfga key: %w", err)
	}
	if info.Size() > maxKeyBytes {
		return nil, fmt.Errorf("openfga key: %s is larger than %d bytes", file, maxKeyBytes)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("openfga key: %w", err)
	}
	key := strings.TrimSpace(string(raw))
	if key == "" {
		return nil, fmt.Errorf("openfga key: %s is empty", file)
	}
	return map[string]string{"Authorization": "Bearer " + key}, nil
}

// httpClient takes no proxy from the environment and follows no redirect: the
// key goes to the configured server and nowhere else.
func httpClient() *http.Client {
	return &http.Client{
		// As many as are asked at once, two for each tool call: what is over it is opened
		// and closed for each question.
		Transport: &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: checkTimeout},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}
