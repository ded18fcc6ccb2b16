package signingkey

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cofferdam.dev/pkg/service"
)

// refreshEvery is how often a replica reads the document.
const refreshEvery = 15 * time.Second

// rounds is how often a replica tries to write a document while others do.
const rounds = 4

// ErrStale says that the document could not be read for too long.
var ErrStale = errors.New("signing keys: the document was not read for too long")

// Store keeps the one document that all replicas share. Its methods are safe for
// concurrent use and end with their context.
type Store interface {
	// LoadKeys gives what stands; revision 0 and no body where there is nothing.
	LoadKeys(ctx context.Context) (revision uint64, body []byte, err error)
	// ReplaceKeys writes body as revision expected+1 where expected stands, and
	// says whether it did. After an error either may be the case.
	ReplaceKeys(ctx context.Context, expected uint64, body []byte) (done bool, err error)
}

// Config of a Keeper. All of it is required.
type Config struct {
	Store    Store
	Sealer   *Sealer
	Schedule Schedule
	Now      func() time.Time
	Logger   *slog.Logger
}

// Keeper has the keys of one replica, as the document in the store says. It is
// safe for concurrent use.
type Keeper struct {
	cfg Config

	mu     sync.RWMutex
	doc    document
	body   []byte // doc as it stands in the store
	ring   *Ring  // of all keys of doc
	readAt time.Time
}

// Open reads the keys, and makes the first one where there is none. What was not
// encrypted with the first key of the key file is encrypted anew.
func Open(ctx context.Context, cfg Config) (*Keeper, error) {
	if err := cfg.Schedule.Validate(); err != nil {
		return nil, err
	}
	k := &Keeper{cfg: cfg}
	if err := k.refresh(ctx, true); err != nil {
		return nil, err
	}
	return k, nil
}

// Run refreshes until ctx ends. A replica that cannot goes on with what it knows,
// for StaleAfter.
func (k *Keeper) Run(ctx context.Context) {
	service.Every(ctx, k.cfg.Logger, refreshEvery, "reading the signing keys", k.Refresh)
}

// Refresh reads the document, brings it to where it has to be, and goes by what
// stands then. Of several replicas that change it at once one writes; the others
// read what it wrote.
func (k *Keeper) Refresh(ctx context.Context) error { return k.refresh(ctx, false) }

// refresh also encrypts anew, where that is asked for, what was not encrypted with
// the first key of the key file. That is done when a replica starts, and not by
// each at any time: while they are given a new file one after the other, they
// would undo what the others did.
func (k *Keeper) refresh(ctx context.Context, reseal bool) error {
	ctx, cancel := context.WithTimeout(ctx, refreshEvery)
	defer cancel()
	var unwritten error
	for range rounds {
		began := time.Now() // what stands may change right after it was read
		revision, body, err := k.cfg.Store.LoadKeys(ctx)
		if err != nil {
			return fmt.Errorf("signing keys: read: %w", err)
		}
		doc, err := k.parse(body)
		if err != nil {
			return err
		}
		next, changed, err := k.next(doc, reseal)
		if err != nil {
			return err
		}
		if !changed {
			return k.adopt(ctx, doc, body, began)
		}
		if body, err = next.encode(); err != nil {
			return fmt.Errorf("signing keys: %w", err)
		}
		// Whether it was written shows in what is read next.
		if _, unwritten = k.cfg.Store.ReplaceKeys(ctx, revision, body); unwritten != nil && ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errors.New("signing keys: the document changes all the time, or cannot be written"), unwritten)
}

// parse reads a document, if it is not the one that the replica goes by.
func (k *Keeper) parse(body []byte) (document, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.ring != nil && bytes.Equal(body, k.body) {
		return k.doc, nil
	}
	return parseDocument(body)
}

// next is the document as it has to be now.
func (k *Keeper) next(doc document, reseal bool) (next document, changed bool, err error) {
	next, changed, err = k.cfg.Schedule.plan(doc, k.cfg.Now(), k.create)
	if err != nil || !reseal {
		return next, changed, err
	}
	for i, e := range next.Keys {
		if e.SealedBy == k.cfg.Sealer.primary() {
			continue
		}
		key, err := k.cfg.Sealer.open(e)
		if err != nil {
			return document{}, false, err
		}
		if next.Keys[i], err = k.entry(key, e.SignsFrom); err != nil {
			return document{}, false, err
		}
		changed = true
	}
	return next, changed, nil
}

// create makes a key.
func (k *Keeper) create(signsFrom time.Time) (entry, error) {
	key, err := New()
	if err != nil {
		return entry{}, err
	}
	return k.entry(key, signsFrom)
}

func (k *Keeper) entry(key Key, signsFrom time.Time) (entry, error) {
	sealed, err := k.cfg.Sealer.seal(key)
	if err != nil {
		return entry{}, err
	}
	return entry{ID: key.id, Sealed: sealed, SealedBy: k.cfg.Sealer.primary(), SignsFrom: signsFrom}, nil
}

// adopt goes by a document that was read.
func (k *Keeper) adopt(ctx context.Context, doc document, body []byte, readAt time.Time) error {
	if k.same(body, readAt) {
		return nil
	}
	keys := make([]Key, len(doc.Keys))
	for i, e := range doc.Keys {
		var err error
		if keys[i], err = k.cfg.Sealer.open(e); err != nil {
			return err
		}
	}
	ring, err := NewRing(keys...)
	if err != nil {
		return err
	}
	k.mu.Lock()
	before := k.doc
	k.doc, k.body, k.ring, k.readAt = doc, body, ring, readAt
	k.mu.Unlock()
	k.tell(ctx, before, doc)
	return nil
}

// same says whether what was read is what the replica goes by already.
func (k *Keeper) same(body []byte, readAt time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring == nil || !bytes.Equal(body, k.body) {
		return false
	}
	k.readAt = readAt
	return true
}

// tell logs what has changed.
func (k *Keeper) tell(ctx context.Context, before, after document) {
	now := k.cfg.Now()
	known := make(map[string]entry, len(before.Keys))
	for _, e := range before.Keys {
		known[e.ID] = e
	}
	for i, e := range after.Keys {
		if old, ok := known[e.ID]; !ok || old.SealedBy != e.SealedBy {
			k.cfg.Logger.InfoContext(ctx, "signing key", "kid", e.ID, "state", string(after.state(i, now)), "signs_from", e.SignsFrom, "sealed_by", e.SealedBy)
		}
		delete(known, e.ID)
	}
	for kid := range known {
		k.cfg.Logger.InfoContext(ctx, "signing key withdrawn", "kid", kid)
	}
}

// Sign makes a token of a typ of a payload, as a compact JWS, with the key whose
// time it is, and gives its kid, see Ring.Sign. ErrStale.
func (k *Keeper) Sign(typ string, payload []byte) (compact, kid string, err error) {
	ring, doc, err := k.current()
	if err != nil {
		return "", "", err
	}
	return ring.Sign(doc.signer(k.cfg.Now()), typ, payload)
}

// JWKS is the JWK set (RFC 7517) of the public halves of all keys. ErrStale: what
// a receiver is told has to have every key that another replica may sign with.
func (k *Keeper) JWKS() ([]byte, error) {
	ring, _, err := k.current()
	if err != nil {
		return nil, err
	}
	return ring.JWKS(), nil
}

// Key implements capability.Keys.
func (k *Keeper) Key(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	ring, _, err := k.current()
	if err != nil {
		return nil, err
	}
	return ring.Key(ctx, kid)
}

// Check says whether the replica can sign.
func (k *Keeper) Check(context.Context) error {
	_, _, err := k.current()
	return err
}

func (k *Keeper) current() (*Ring, document, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if time.Since(k.readAt) >= StaleAfter {
		return nil, document{}, ErrStale
	}
	return k.ring, k.doc, nil
}
