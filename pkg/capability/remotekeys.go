package capability

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// What [NewRemoteKeys] uses where no option says otherwise.
const (
	// DefaultRefetchAfter is how long after an answer an unknown kid is simply
	// unknown. It bounds what a sender of invented kids can cause.
	DefaultRefetchAfter = 5 * time.Second
	// DefaultRetryAfter is how long after a failure nothing is asked again.
	DefaultRetryAfter = time.Second
	// DefaultRefreshAfter is the age at which the next use of a key asks for the
	// set again, so that a key that was withdrawn goes away.
	DefaultRefreshAfter = 5 * time.Minute
	// DefaultFetchTimeout bounds one request.
	DefaultFetchTimeout = 5 * time.Second
)

// JWKSPath is where the capability service publishes its keys.
const JWKSPath = "/.well-known/jwks.json"

// RemoteOption changes a default of RemoteKeys.
type RemoteOption func(*RemoteKeys)

// WithRefetchAfter replaces [DefaultRefetchAfter].
func WithRefetchAfter(d time.Duration) RemoteOption {
	return func(k *RemoteKeys) { k.refetchAfter = d }
}

// WithRefreshAfter replaces [DefaultRefreshAfter].
func WithRefreshAfter(d time.Duration) RemoteOption {
	return func(k *RemoteKeys) { k.refreshAfter = d }
}

// RemoteKeys has the keys that the capability service publishes. It asks when it
// needs a key that it does not have, one request at a time and never more often
// than [DefaultRefetchAfter] allows. A known key needs no request and stays
// usable while the service is down. It is safe for concurrent use.
//
// A key that was withdrawn is refused from the first answer on that does not
// have it; that answer is asked for by the first use of any key after
// [DefaultRefreshAfter], which does not wait for it.
type RemoteKeys struct {
	client       *http.Client
	url          string
	refetchAfter time.Duration
	refreshAfter time.Duration

	fetches sync.WaitGroup // at most one at a time

	mu      sync.Mutex
	set     KeySet
	setAt   time.Time          // when set was the answer
	triedAt time.Time          // when the last request ended; zero before the first
	err     error              // of the last request
	flight  chan struct{}      // closed when the request under way ends; nil when there is none
	cancel  context.CancelFunc // of the request under way
	closed  bool
}

// NewRemoteKeys reads the JWK set at url, with a client that proves who answers
// (identity.HTTPClient); nothing is requested yet.
func NewRemoteKeys(client *http.Client, url string, opts ...RemoteOption) *RemoteKeys {
	k := &RemoteKeys{client: client, url: url, refetchAfter: DefaultRefetchAfter, refreshAfter: DefaultRefreshAfter}
	for _, o := range opts {
		o(k)
	}
	return k
}

// Prefetch begins to ask for the set, so that the first key need not wait for it. A
// failure is forgotten: whoever needs a key asks at once.
func (k *RemoteKeys) Prefetch(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.setAt.IsZero() {
		k.fetchLocked(ctx, time.Now(), true)
	}
}

// Close ends a request that is under way and waits for it. Keys that are known
// stay usable; nothing is requested any more.
func (k *RemoteKeys) Close() error {
	k.mu.Lock()
	k.closed = true
	if k.cancel != nil {
		k.cancel()
	}
	k.mu.Unlock()
	k.fetches.Wait()
	return nil
}

// Key implements [Keys]. It waits for a request at most until ctx ends and at
// most [DefaultFetchTimeout]. Errors: [ErrUnknownKey] where the set was had and
// lacks the key, the error of ctx, or why the set could not be had.
func (k *RemoteKeys) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	k.mu.Lock()
	now := time.Now()
	pub, err := k.set.Key(ctx, kid)
	if err == nil {
		if now.Sub(k.setAt) >= k.refreshAfter {
			k.fetchLocked(ctx, now, false)
		}
		k.mu.Unlock()
		return pub, nil
	}
	k.fetchLocked(ctx, now, false)
	flight := k.flight
	k.mu.Unlock()

	if flight != nil {
		select {
		case <-flight:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if pub, err := k.set.Key(ctx, kid); err == nil || k.err == nil {
		return pub, err
	}
	return nil, k.err
}

// fetchLocked begins a request, unless one is under way or it is too early. The
// request is not the caller's: others wait for it too, so it outlives ctx. One that is
// ahead of its time keeps nobody from asking again where it fails.
func (k *RemoteKeys) fetchLocked(ctx context.Context, now time.Time, ahead bool) {
	wait := k.refetchAfter
	if k.err != nil {
		wait = DefaultRetryAfter
	}
	if k.flight != nil || (!k.triedAt.IsZero() && now.Sub(k.triedAt) < wait) {
		return
	}
	if k.closed {
		k.err = errors.New("capability: remote keys are closed")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultFetchTimeout)
	flight := make(chan struct{})
	k.flight, k.cancel = flight, cancel
	k.fetches.Go(func() {
		defer cancel()
		set, err := k.fetch(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.triedAt, k.err = time.Now(), err
		if err == nil {
			k.set, k.setAt = set, k.triedAt
		}
		if err != nil && ahead {
			k.triedAt = time.Time{}
		}
		k.flight, k.cancel = nil, nil
		close(flight)
	})
}

func (k *RemoteKeys) fetch(ctx context.Context) (set KeySet, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return KeySet{}, fmt.Errorf("capability: JWK set: %w", err)
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := k.client.Do(req)
	if err != nil {
		return KeySet{}, fmt.Errorf("capability: JWK set: %w", err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return KeySet{}, fmt.Errorf("capability: JWK set: answer is %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, MaxKeySetBytes+1)) // one more than ParseKeySet takes
	if err != nil {
		return KeySet{}, fmt.Errorf("capability: JWK set: %w", err)
	}
	return ParseKeySet(body)
}
