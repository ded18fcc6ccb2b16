package signingkey

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/strictjson"
)

// Bounds of a rotation.
const (
	// StaleAfter is how old the document may be that a replica goes by. One that
	// could not read it again for so long signs nothing and publishes nothing.
	StaleAfter = time.Minute
	// MaxSkew is how far the clocks of two replicas may differ.
	MaxSkew = 30 * time.Second
	// MinEvery is the shortest life of a key: a new one is published for some
	// minutes before it signs.
	MinEvery = time.Hour
	// maxDocument bounds a document, in bytes of JSON.
	maxDocument = 64 << 10
)

// entry is one key as it is kept. What is published of it is computed from the
// private half, so that whoever can write to the store and has no key file
// publishes no key of their own.
type entry struct {
	ID string `json:"kid"`
	// Sealed is the private key, encrypted, and SealedBy the kid of the key that
	// encrypted it.
	Sealed   string `json:"sealed"`
	SealedBy string `json:"sealed_by"`
	// SignsFrom is when it signs in the place of the one before it.
	SignsFrom time.Time `json:"signs_from"`
}

// document is all keys, the oldest first.
type document struct {
	Keys []entry `json:"keys"`
}

func parseDocument(body []byte) (document, error) {
	var d document
	if body == nil {
		return d, nil
	}
	if err := strictjson.Unmarshal(body, &d, strictjson.Options{MaxBytes: maxDocument, MaxDepth: 4, RequireFields: true}); err != nil {
		return document{}, fmt.Errorf("signing keys: the document in the store: %w", err)
	}
	for i, e := range d.Keys {
		if i > 0 && !e.SignsFrom.After(d.Keys[i-1].SignsFrom) {
			return document{}, errors.New("signing keys: the document in the store: the keys are not in order")
		}
	}
	return d, nil
}

func (d document) encode() ([]byte, error) { return json.Marshal(d) }

// state is what a key does at a time. It follows from the times alone, so that
// every replica comes to the same result and nobody has to write it.
type state string

const (
	stateNext     state = "next"     // published, so that every receiver knows it before it signs
	stateActive   state = "active"   // signs
	stateRetiring state = "retiring" // published until the last token that it signed has expired
)

// signer is the index of the key that signs: the last one whose time has come.
// Before the first one's that is the first one, for a replica whose clock is late.
func (d document) signer(now time.Time) int {
	at := 0
	for i, e := range d.Keys {
		if !now.Before(e.SignsFrom) {
			at = i
		}
	}
	return at
}

func (d document) state(i int, now time.Time) state {
	switch at := d.signer(now); {
	case i > at:
		return stateNext
	case i < at:
		return stateRetiring
	default:
		return stateActive
	}
}

// Schedule says when keys are replaced.
type Schedule struct {
	// Every is how long a key signs, at least MinEvery.
	Every time.Duration
	// MaxTTL is the longest life of a token of any replica.
	MaxTTL time.Duration

	// leadFor and keepFor take the place of what follows from the bounds, in tests
	// that show that less would not do.
	leadFor, keepFor time.Duration
}

// lead is how long a key is published before it signs. A replica has it at the
// latest StaleAfter after it was written, or publishes nothing; a receiver asks
// for the set again at the latest DefaultRefreshAfter after that; and the replica
// whose clock is ahead begins that much earlier.
func (s Schedule) lead() time.Duration {
	if s.leadFor > 0 {
		return s.leadFor
	}
	return StaleAfter + capability.DefaultRefreshAfter + capability.DefaultFetchTimeout + MaxSkew
}

// keep is how long a key is published after another one took its place. A replica
// that has not heard of that signs with it for StaleAfter at most, and what it
// signs lives for MaxTTL.
func (s Schedule) keep() time.Duration {
	if s.keepFor > 0 {
		return s.keepFor
	}
	return StaleAfter + s.MaxTTL + capability.ClockSkew + MaxSkew
}

// Validate refuses what could not hold: more keys at once than receivers take.
func (s Schedule) Validate() error {
	switch most := int((s.keep()+s.lead())/max(s.Every, 1)) + 2; {
	case s.Every < MinEvery:
		return fmt.Errorf("a key signs for at least %v", MinEvery)
	case most > capability.MaxKeys:
		return fmt.Errorf("%d keys would be published at once, and receivers take %d: replace them less often", most, capability.MaxKeys)
	}
	return nil
}

// plan brings the document to where it has to be now: keys that nobody needs any
// more are gone, and the next one is there in time.
func (s Schedule) plan(d document, now time.Time, create func(signsFrom time.Time) (entry, error)) (next document, changed bool, err error) {
	next.Keys = make([]entry, 0, len(d.Keys)+1) // d stays what it is
	for i := range d.Keys {
		if i+1 < len(d.Keys) && !now.Before(d.Keys[i+1].SignsFrom.Add(s.keep())) {
			changed = true
			continue
		}
		next.Keys = append(next.Keys, d.Keys[i])
	}
	from := now // nobody waits for the first one
	if n := len(next.Keys); n > 0 {
		last := next.Keys[n-1].SignsFrom
		if now.Before(last.Add(s.Every - s.lead())) {
			return next, changed, nil
		}
		if from = last.Add(s.Every); from.Before(now.Add(s.lead())) {
			from = now.Add(s.lead())
		}
	}
	e, err := create(from.UTC())
	if err != nil {
		return document{}, false, err
	}
	next.Keys = append(next.Keys, e)
	return next, true, nil
}
