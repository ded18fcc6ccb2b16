package signingkey

import (
	"context"
	"crypto/ed25519"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/capability"
)

// ttl of every token in these tests.
const ttl = 2 * time.Hour

// slowReceiver knows the keys that it was told last. It asks when its set is as
// old as a receiver's may be, whichever replica answers, and never for a kid that
// it does not know: what that would make good must not be needed.
type slowReceiver struct {
	set     capability.KeySet
	askedAt time.Time
}

func (r *slowReceiver) key(t *testing.T, replicas []*Keeper, kid string) (ed25519.PublicKey, error) {
	t.Helper()
	if r.askedAt.IsZero() || time.Since(r.askedAt) >= capability.DefaultRefreshAfter {
		for _, i := range rand.Perm(len(replicas)) { //nolint:gosec // any replica may answer: chance, not secrets
			raw, err := replicas[i].JWKS()
			if err != nil {
				continue // it does not know the set and gives none; a receiver asks again after a second
			}
			if r.set, err = capability.ParseKeySet(raw); err != nil {
				t.Fatal(err)
			}
			r.askedAt = time.Now()
			break
		}
	}
	return r.set.Key(context.Background(), kid) //nolint:usetesting // a lookup in memory
}

type signedToken struct {
	compact, kid string
	expires      time.Time
}

// rotations runs replicas whose clocks are apart by as much as they may be, one of
// which cannot reach the store every now and then, and receivers beside them, for
// some generations of keys. It counts tokens that a receiver could not verify
// before they expired, and keys that ever signed.
func rotations(t *testing.T, lead, keep time.Duration) (refused int, kids map[string]bool, most int) {
	t.Helper()
	store, seal := &shelf{}, freshSealKey(t)
	gone := &away{Store: store}
	var replicas []*Keeper
	for i, offset := range []time.Duration{-MaxSkew / 2, 0, MaxSkew / 2} {
		cfg := configOf(store, sealerOf(seal))
		cfg.Schedule = Schedule{Every: 3 * time.Hour, MaxTTL: ttl, leadFor: lead, keepFor: keep}
		cfg.Now = func() time.Time { return time.Now().Add(offset) }
		if i == 0 {
			cfg.Store = gone
		}
		replicas = append(replicas, opened(t, cfg))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, k := range replicas {
		running.Go(func() { k.Run(ctx) })
	}
	defer running.Wait()
	defer cancel()

	receivers := make([]*slowReceiver, 6)
	for i := range receivers {
		receivers[i] = &slowReceiver{}
	}
	kids = map[string]bool{}
	var alive []signedToken
	const step = time.Minute
	for now := time.Duration(0); now < 13*time.Hour; now += step {
		// For a minute of ten the first replica is cut off, and sometimes longer.
		gone.set(now%(10*time.Minute) == 0 || now%(3*time.Hour) > 170*time.Minute)
		for _, k := range replicas {
			compact, kid, err := k.Sign(capability.TokenType, []byte(`{}`))
			if err != nil {
				continue // it says so, and another one is asked
			}
			kids[kid] = true
			alive = append(alive, signedToken{compact, kid, time.Now().Add(ttl)})
		}
		if ring, _, err := replicas[1].current(); err == nil {
			most = max(most, len(ring.keys))
		}
		kept := alive[:0]
		for i, tok := range alive {
			if !time.Now().Before(tok.expires) {
				continue
			}
			kept = append(kept, tok)
			// The newest and the oldest are the ones that a key can be missing for.
			if i > 2 && i < len(alive)-3 {
				continue
			}
			pub, err := receivers[(i+int(now/step))%len(receivers)].key(t, replicas, tok.kid)
			// A known kid is the key itself; the signature is looked at once a step.
			if err != nil || i == len(alive)-1 && !verifies(tok.compact, pub) {
				refused++
			}
		}
		alive = kept
		time.Sleep(step) //nolint:forbidigo // synctest's clock
	}
	return refused, kids, most
}

func verifies(compact string, pub ed25519.PublicKey) bool {
	signed, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{capability.Algorithm})
	if err != nil {
		return false
	}
	_, err = signed.Verify(pub)
	return err == nil
}

// away is a store that can be cut off.
type away struct {
	Store
	mu  sync.Mutex
	cut bool
}

func (a *away) set(cut bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cut = cut
}

func (a *away) LoadKeys(ctx context.Context) (uint64, []byte, error) {
	a.mu.Lock()
	cut := a.cut
	a.mu.Unlock()
	if cut {
		return 0, nil, context.DeadlineExceeded
	}
	return a.Store.LoadKeys(ctx)
}

// Every receiver knows a key before it signs, and knows it until the last token of
// it has expired: through several rotations, with clocks apart, and with a replica
// that loses the store.
func TestKeysOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, kids, most := rotations(t, 0, 0)
		if refused > 0 {
			t.Errorf("%d tokens were not known", refused)
		}
		if len(kids) < 5 || most != 2 {
			t.Errorf("%d keys signed, at most %d were published at once", len(kids), most)
		}
	})
}

// The same with a schedule that is too tight fails, so the test above sees what
// it looks for.
func TestATighterScheduleIsFoundOut(t *testing.T) {
	for name, s := range map[string][2]time.Duration{"published too late": {time.Second, 0}, "withdrawn too early": {0, ttl / 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if refused, _, _ := rotations(t, s[0], s[1]); refused == 0 {
					t.Error("no token was refused")
				}
			})
		})
	}
}
