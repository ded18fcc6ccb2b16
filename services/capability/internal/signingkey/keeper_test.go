package signingkey

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/capability"
)

// shelf is a Store in memory, with errors and a moment to step in. The real back
// ends pass the same suite and are tested in keystore.
type shelf struct {
	mu       sync.Mutex
	revision uint64
	body     []byte
	writes   int
	loadErr  error
	// lose makes a write happen and its answer get lost.
	lose   bool
	before func() // before a write, once
}

func (s *shelf) LoadKeys(context.Context) (uint64, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, bytes.Clone(s.body), s.loadErr
}

func (s *shelf) ReplaceKeys(_ context.Context, expected uint64, body []byte) (bool, error) {
	s.mu.Lock()
	f := s.before
	s.before = nil
	s.mu.Unlock()
	if f != nil {
		f()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revision != expected {
		return false, nil
	}
	s.revision, s.body, s.writes = expected+1, bytes.Clone(body), s.writes+1
	if s.lose {
		s.lose = false
		return false, errors.New("the answer was lost")
	}
	return true, nil
}

func (s *shelf) document(t *testing.T) document {
	t.Helper()
	d, err := parseDocument(s.body)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func sealerOf(keys ...sealKey) *Sealer { return &Sealer{path: "keys.json", keys: keys} }

func configOf(s Store, sealer *Sealer) Config {
	return Config{
		Store: s, Sealer: sealer, Schedule: Schedule{Every: 24 * time.Hour, MaxTTL: time.Hour}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
}

func opened(t *testing.T, cfg Config) *Keeper {
	t.Helper()
	k, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func kidsOf(t *testing.T, k *Keeper) []string {
	t.Helper()
	raw, err := k.JWKS()
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(raw, &set); err != nil || bytes.Contains(raw, []byte(`"d"`)) {
		t.Fatalf("%s: %v", raw, err)
	}
	var kids []string
	for _, key := range set.Keys {
		kids = append(kids, key.KeyID)
	}
	return kids
}

// Of replicas that start at once, and of those that find at once that a key is
// due, one writes, and all go by what it wrote.
func TestOneReplicaRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, sealer := &shelf{}, sealerOf(freshSealKey(t))
		keepers := make([]*Keeper, 8)
		all := func(do func(i int)) {
			var wg sync.WaitGroup
			for i := range keepers {
				wg.Go(func() { do(i) })
			}
			wg.Wait()
		}
		same := func(keys, writes int) {
			t.Helper()
			first := kidsOf(t, keepers[0])
			if len(first) != keys || store.writes != writes {
				t.Errorf("%d keys after %d writes, want %d after %d", len(first), store.writes, keys, writes)
			}
			for _, k := range keepers {
				if got := kidsOf(t, k); strings.Join(got, " ") != strings.Join(first, " ") {
					t.Errorf("one replica publishes %q, another %q", got, first)
				}
			}
		}
		all(func(i int) { keepers[i] = opened(t, configOf(store, sealer)) })
		same(1, 1)
		time.Sleep(24 * time.Hour) //nolint:forbidigo // synctest's clock
		all(func(i int) {
			if err := keepers[i].Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		})
		same(2, 2)
	})
}

// A write whose answer was lost is settled by reading, and not written twice.
func TestALostAnswerMakesNoSecondKey(t *testing.T) {
	store := &shelf{lose: true}
	k := opened(t, configOf(store, sealerOf(freshSealKey(t))))
	if kids := kidsOf(t, k); len(kids) != 1 || store.writes != 1 {
		t.Errorf("%d keys after %d writes", len(kids), store.writes)
	}
}

// A replica that cannot read the document goes on for a minute, and then neither
// signs nor publishes: another one may have gone on to a key that it does not
// know.
func TestAReplicaThatCannotReadStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shelf{}
		k := opened(t, configOf(store, sealerOf(freshSealKey(t))))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { k.Run(ctx) })
		defer wg.Wait()
		defer cancel()
		works := func() bool {
			_, kid, err := k.Sign(capability.TokenType, []byte(`{}`))
			_, jwksErr := k.JWKS()
			_, keyErr := k.Key(t.Context(), kid)
			if (err == nil) != (jwksErr == nil) || (err == nil) != (keyErr == nil) || (err == nil) != (k.Check(t.Context()) == nil) {
				t.Errorf("sign: %v, publish: %v, verify: %v", err, jwksErr, keyErr)
			}
			if err != nil && !errors.Is(err, ErrStale) {
				t.Errorf("%v", err)
			}
			return err == nil
		}
		fail := func(err error) { store.mu.Lock(); store.loadErr = err; store.mu.Unlock() }
		time.Sleep(time.Hour) //nolint:forbidigo // synctest's clock
		if !works() {
			t.Error("it does not read the document again by itself")
		}
		fail(errors.New("no connection"))
		time.Sleep(StaleAfter - 2*refreshEvery) //nolint:forbidigo // synctest's clock
		if !works() {
			t.Error("it stops at once")
		}
		time.Sleep(3 * refreshEvery) //nolint:forbidigo // synctest's clock
		if works() {
			t.Error("it goes on")
		}
		fail(nil)
		time.Sleep(2 * refreshEvery) //nolint:forbidigo // synctest's clock
		if !works() {
			t.Error("it does not come back")
		}
	})
}

func TestNothingInTheStoreIsReadable(t *testing.T) {
	store, seal := &shelf{}, freshSealKey(t)
	var log bytes.Buffer
	cfg := configOf(store, sealerOf(seal))
	cfg.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	k := opened(t, cfg)
	private := k.ring.keys[0].private()
	for _, secret := range [][]byte{private.Seed(), private, seal.secret()} {
		for _, enc := range []*base64.Encoding{base64.RawURLEncoding, base64.RawStdEncoding} {
			if text := enc.EncodeToString(secret); bytes.Contains(store.body, []byte(text)) || strings.Contains(log.String(), text) {
				t.Error("a secret is in the store or the log")
			}
		}
		if bytes.Contains(store.body, secret) {
			t.Error("a secret is in the store")
		}
	}
	if !strings.Contains(log.String(), `"state":"active"`) {
		t.Errorf("log: %s", &log)
	}
}

// Whoever can write to the store and has no key file cannot make receivers believe
// a key of theirs, and cannot pass one key off as another.
func TestADocumentThatWasChanged(t *testing.T) {
	seal, foreign := freshSealKey(t), freshSealKey(t)
	theirs, err := New()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := sealerOf(sealKey{id: seal.id, secret: foreign.secret}).seal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*document){
		"a key of theirs": func(d *document) { d.Keys[0] = entry{theirs.id, sealed, seal.id, d.Keys[0].SignsFrom} },
		"a key of theirs as the next": func(d *document) {
			d.Keys = append(d.Keys, entry{theirs.id, sealed, seal.id, time.Now().Add(time.Hour)})
		},
		"another kid":                    func(d *document) { d.Keys[0].ID = "another" },
		"a changed byte":                 func(d *document) { d.Keys[0].Sealed = d.Keys[0].Sealed[:len(d.Keys[0].Sealed)-2] + "AA" },
		"nothing sealed":                 func(d *document) { d.Keys[0].Sealed = "" },
		"a plain JWK":                    func(d *document) { d.Keys[0].Sealed = `{"kty":"OKP"}` },
		"sealed with a key that is gone": func(d *document) { d.Keys[0].SealedBy = "kek-gone" },
		"a key twice": func(d *document) {
			e := d.Keys[0]
			e.SignsFrom = e.SignsFrom.Add(time.Hour)
			d.Keys = append(d.Keys, e)
		},
		"in another order": func(d *document) {
			e := d.Keys[0]
			e.SignsFrom = e.SignsFrom.Add(-time.Hour)
			d.Keys = append(d.Keys, e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &shelf{}
			cfg := configOf(store, sealerOf(seal))
			k := opened(t, cfg)
			before := kidsOf(t, k)
			d := store.document(t)
			change(&d)
			var err error
			if store.body, err = d.encode(); err != nil {
				t.Fatal(err)
			}
			if err := k.Refresh(t.Context()); err == nil {
				t.Error("the replica goes by it")
			}
			if _, err := Open(t.Context(), cfg); err == nil {
				t.Error("a replica starts with it")
			}
			if got := kidsOf(t, k); strings.Join(got, " ") != strings.Join(before, " ") {
				t.Errorf("published: %q, before %q", got, before)
			}
		})
	}
}

// The key file is rotated with two keys in it, replica by replica, and no replica
// is ever without the keys.
func TestTheKeyFileIsRotated(t *testing.T) {
	store, old, fresh := &shelf{}, freshSealKey(t), freshSealKey(t)
	files := map[string]*Sealer{
		"old": sealerOf(old), "old, new": sealerOf(old, fresh), "new, old": sealerOf(fresh, old), "new": sealerOf(fresh),
	}
	kids := kidsOf(t, opened(t, configOf(store, files["old"])))
	replicas := [2]string{"old", "old"}
	for _, step := range []string{"old, new", "new, old", "new"} {
		for i := range replicas {
			replicas[i] = step
			for j, file := range replicas { // each starts again, and each reads again, with the file that it has
				k := opened(t, configOf(store, files[file]))
				if err := k.Refresh(t.Context()); err != nil || strings.Join(kidsOf(t, k), " ") != strings.Join(kids, " ") {
					t.Fatalf("files %q: replica %d: %v", replicas, j, err)
				}
			}
		}
	}
	if by := store.document(t).Keys[0].SealedBy; by != fresh.id {
		t.Errorf("sealed by %s, want %s", by, fresh.id)
	}
	if _, err := Open(t.Context(), configOf(store, files["old"])); err == nil || !strings.Contains(err.Error(), fresh.id) {
		t.Errorf("with the old file alone: %v", err)
	}
	// A replica that runs encrypts nothing anew: beside one with another file it
	// would do so for ever.
	k := opened(t, configOf(store, files["old, new"]))
	writes := store.writes
	for range 3 {
		if err := errors.Join(k.Refresh(t.Context()), opened(t, configOf(store, files["old, new"])).Refresh(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if store.writes != writes {
		t.Errorf("%d further writes", store.writes-writes)
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	for _, s := range []Schedule{{}, {Every: MinEvery - 1, MaxTTL: time.Hour}, {Every: time.Hour, MaxTTL: 48 * time.Hour}} {
		if s.Validate() == nil {
			t.Errorf("%+v is taken", s)
		}
	}
	for _, s := range []Schedule{{Every: MinEvery, MaxTTL: 24 * time.Hour}, {Every: 30 * 24 * time.Hour, MaxTTL: 24 * time.Hour}} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if s := (Schedule{}); s.lead() <= capability.DefaultRefreshAfter+StaleAfter {
		t.Errorf("a key is published for %v", s.lead())
	}
}
