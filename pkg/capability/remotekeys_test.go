package capability_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
)

// publisher answers for the capability service without a network, so that
// testing/synctest owns the time.
type publisher struct {
	mu    sync.Mutex
	body  []byte
	err   error
	delay time.Duration
	asked atomic.Int32
}

func (p *publisher) set(body []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.body, p.err = body, err
}

func (p *publisher) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked.Add(1)
	p.mu.Lock()
	body, err, delay := p.body, p.err, p.delay
	p.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
}

func remote(t *testing.T, p *publisher) *capability.RemoteKeys {
	t.Helper()
	k := capability.NewRemoteKeys(&http.Client{Transport: p}, "https://capability"+capability.JWKSPath)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k
}

func find(t *testing.T, k capability.Keys, kid string, want ed25519.PublicKey) {
	t.Helper()
	got, err := k.Key(t.Context(), kid)
	if err != nil || !got.Equal(want) {
		t.Errorf("key %q: error %v, want it found", kid, err)
	}
}

func unknown(t *testing.T, k capability.Keys, kid string) {
	t.Helper()
	if _, err := k.Key(t.Context(), kid); !errors.Is(err, capability.ErrUnknownKey) {
		t.Errorf("key %q: error = %v, want ErrUnknownKey", kid, err)
	}
}

func unavailable(t *testing.T, k capability.Keys, kid string) {
	t.Helper()
	if _, err := k.Key(t.Context(), kid); err == nil || errors.Is(err, capability.ErrUnknownKey) {
		t.Errorf("key %q: error = %v, want one that says the service is away", kid, err)
	}
}

func asked(t *testing.T, p *publisher, want int32) {
	t.Helper()
	if got := p.asked.Load(); got != want {
		t.Errorf("%d requests, want %d", got, want)
	}
}

func TestKnownKeysNeedNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, _ := newPair(t)
		p := &publisher{body: jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"})}
		k := remote(t, p)
		asked(t, p, 0)
		for range 10 {
			find(t, k, "a", pub)
		}
		asked(t, p, 1)
	})
}

func TestInventedKidsCauseABoundedNumberOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, _ := newPair(t)
		p := &publisher{body: jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"}), delay: 10 * time.Millisecond}
		k := remote(t, p)
		for range 20 { // for 20 seconds, 50 at once, every 10 ms
			for range 100 {
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() { unknown(t, k, "invented") })
				}
				wg.Wait()
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // synctest's clock: it passes at once
			}
		}
		// 20 s or a little more at one request in 5 s, the first at once.
		if got := p.asked.Load(); got < 4 || got > 6 {
			t.Errorf("%d requests in 20 s, want one in %v", got, capability.DefaultRefetchAfter)
		}
		find(t, k, "a", pub)
	})
}

func TestManyFirstUsersShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, _ := newPair(t)
		p := &publisher{body: jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"}), delay: time.Second}
		k := remote(t, p)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { find(t, k, "a", pub) })
		}
		wg.Wait()
		asked(t, p, 1)
	})
}

func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, _ := newPair(t)
		second, _ := newPair(t)
		a, b := jose.JSONWebKey{Key: first, KeyID: "a"}, jose.JSONWebKey{Key: second, KeyID: "b"}
		p := &publisher{body: jwks(t, a)}
		k := remote(t, p)
		find(t, k, "a", first)
		time.Sleep(capability.DefaultRefetchAfter) //nolint:forbidigo // synctest's clock

		p.set(jwks(t, b, a), nil) // overlap: both are published
		find(t, k, "b", second)
		find(t, k, "a", first)
		asked(t, p, 2)

		p.set(jwks(t, b), nil)                     // the first is withdrawn
		time.Sleep(capability.DefaultRefreshAfter) //nolint:forbidigo // synctest's clock
		find(t, k, "a", first)                     // the use that asks does not wait
		synctest.Wait()
		unknown(t, k, "a")
		find(t, k, "b", second)
		asked(t, p, 3)
	})
}

func TestOldKeysStayUsableWhileTheServiceIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, _ := newPair(t)
		p := &publisher{body: jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"})}
		k := remote(t, p)
		find(t, k, "a", pub)
		p.set(nil, errors.New("connection refused"))
		for range 10 {
			time.Sleep(capability.DefaultRefreshAfter) //nolint:forbidigo // synctest's clock
			find(t, k, "a", pub)
			synctest.Wait()
		}
		asked(t, p, 11)
		// Whether another key exists cannot be known now: not the token's fault.
		unavailable(t, k, "b")
		p.set([]byte("<html>a proxy's error page</html>"), nil)
		time.Sleep(capability.DefaultRetryAfter) //nolint:forbidigo // synctest's clock
		unavailable(t, k, "b")
		find(t, k, "a", pub)
	})
}

func TestServiceThatComesUpLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, _ := newPair(t)
		p := &publisher{err: errors.New("connection refused")}
		k := remote(t, p)
		for range 100 { // a storm within the pause costs one request
			unavailable(t, k, "a")
		}
		asked(t, p, 1)
		p.set(jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"}), nil)
		time.Sleep(capability.DefaultRetryAfter) //nolint:forbidigo // synctest's clock
		find(t, k, "a", pub)
	})
}

func TestServiceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{delay: time.Hour}
		k := remote(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := k.Key(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want the caller's deadline", err)
		}
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("waited %v, want until the caller's deadline", waited)
		}
		unavailable(t, k, "a") // waits for the request of the caller that left
		if waited := time.Since(begin); waited != capability.DefaultFetchTimeout {
			t.Errorf("waited %v, want %v", waited, capability.DefaultFetchTimeout)
		}
		asked(t, p, 1)
	})
}

func TestCallerThatLeavesDoesNotSpoilTheRequestForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, _ := newPair(t)
		p := &publisher{body: jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"}), delay: time.Second}
		k := remote(t, p)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := k.Key(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v, want the caller's", err)
		}
		find(t, k, "a", pub)
		asked(t, p, 1)
	})
}

func TestCloseEndsARequestAndKeepsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, _ := newPair(t)
		p := &publisher{body: jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"})}
		k := remote(t, p)
		find(t, k, "a", pub)
		time.Sleep(capability.DefaultRefetchAfter) //nolint:forbidigo // synctest's clock
		p.mu.Lock()
		p.delay = time.Hour
		p.mu.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() { unavailable(t, k, "b") })
		synctest.Wait()
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		find(t, k, "a", pub)
		time.Sleep(capability.DefaultRefreshAfter) //nolint:forbidigo // synctest's clock
		unavailable(t, k, "b")
		asked(t, p, 2)
	})
}

func TestRemoteKeysOverHTTP(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	right := capabilitytest.Claims(capability.ToolBroker, sandbox)
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		ok    bool
	}{
		"the set":    {m.ServeHTTP, true},
		"not found":  {http.NotFound, false},
		"a redirect": {http.RedirectHandler("/elsewhere", http.StatusFound).ServeHTTP, false},
		"an error":   {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, string(m.JWKS()), http.StatusTeapot) }, false},
		"an endless body": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewTLSServer(tc.serve)
			defer srv.Close()
			client := srv.Client()
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			k := capability.NewRemoteKeys(client, srv.URL+capability.JWKSPath)
			defer func() { _ = k.Close() }()
			v, err := capability.NewVerifier(capability.Config{Issuer: m.Issuer(), Keys: k})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := present(t, v, m.Mint(right), right); (err == nil) != tc.ok {
				t.Errorf("error = %v, want accepted = %v", err, tc.ok)
			}
		})
	}
}

// What was asked for ahead is there without another request; what could not be had then
// is asked for again by the first who needs it, and not a while later.
func TestPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, _ := newPair(t)
		body := jwks(t, jose.JSONWebKey{Key: pub, KeyID: "a"})
		p := &publisher{body: body, delay: time.Second}
		k := remote(t, p)
		k.Prefetch(t.Context())
		k.Prefetch(t.Context())
		time.Sleep(2 * time.Second) //nolint:forbidigo // synctest's clock: it passes at once
		began := time.Now()
		find(t, k, "a", pub)
		k.Prefetch(t.Context())
		if took := time.Since(began); took != 0 {
			t.Errorf("the key came after %v", took)
		}
		asked(t, p, 1)

		away := &publisher{err: errors.New("away")}
		k = remote(t, away)
		k.Prefetch(t.Context())
		synctest.Wait()
		away.set(body, nil)
		find(t, k, "a", pub)
		asked(t, away, 2)
	})
}
