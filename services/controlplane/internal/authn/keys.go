package authn

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxJWKSBytes = 1 << 20
	// refetchAfter bounds how often an unknown kid makes the set be read again.
	refetchAfter = 10 * time.Second
	// keepFor is how long a set is used before it is read again anyhow.
	keepFor = 10 * time.Minute
	// retryAfter bounds how often an issuer that does not answer is asked while
	// no set was ever read.
	retryAfter   = time.Second
	fetchTimeout = 5 * time.Second
)

// cachedKeys keeps the issuer's set. A set that cannot be read again stays in
// use: an issuer that is away does not lock everybody out.
type cachedKeys struct {
	read func(context.Context) ([]byte, error)
	now  func() time.Time

	mu     sync.Mutex
	set    jose.JSONWebKeySet
	last   time.Time
	failed error
}

// FileKeys reads the set from a file, and again when an unknown kid comes or
// some minutes have passed.
func FileKeys(path string) Keys {
	return &cachedKeys{now: time.Now, read: func(context.Context) ([]byte, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Size() > maxJWKSBytes {
			return nil, fmt.Errorf("%s is larger than %d bytes", path, maxJWKSBytes)
		}
		return os.ReadFile(path)
	}}
}

// URLKeys reads the set from a URL. The client must not follow redirects.
func URLKeys(client *http.Client, url string) Keys {
	return &cachedKeys{now: time.Now, read: func(ctx context.Context) (body []byte, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		res, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("JWK set: status %d", res.StatusCode)
		}
		return io.ReadAll(io.LimitReader(res.Body, maxJWKSBytes))
	}}
}

// Keys with the id. All callers wait for one read, which does not end with the
// request that asked for it: a caller that hangs up keeps nobody else out.
func (k *cachedKeys) Keys(ctx context.Context, kid string) ([]jose.JSONWebKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := k.set.Key(kid)
	age := k.now().Sub(k.last)
	switch {
	case len(k.set.Keys) == 0 && k.failed != nil && age < retryAfter:
		return nil, k.failed
	case len(found) > 0 && age < keepFor, len(found) == 0 && len(k.set.Keys) > 0 && age < refetchAfter:
		return found, nil
	}
	set, err := k.fetch(context.WithoutCancel(ctx))
	k.last = k.now()
	if err == nil {
		k.set, k.failed = set, nil
		return set.Key(kid), nil
	}
	k.failed = err
	if len(k.set.Keys) == 0 {
		return nil, err
	}
	return found, nil
}

func (k *cachedKeys) fetch(ctx context.Context) (jose.JSONWebKeySet, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	raw, err := k.read(ctx)
	if err != nil {
		return jose.JSONWebKeySet{}, err
	}
	return ParseJWKS(raw)
}
