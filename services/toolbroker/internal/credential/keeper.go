package credential

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cofferdam.dev/services/toolbroker/internal/project"
)

const (
	// fetchTimeout bounds one fetch.
	fetchTimeout = 10 * time.Second
	// failureLife is how long a failure stands, so that many callers do not storm
	// a token endpoint that is down.
	failureLife = time.Second
	// maxMargin is how long before its expiry a token is no longer used, or a
	// tenth of its life where that is less.
	maxMargin = time.Minute
	// remembered is how many secrets are cut out of results: the one in use, and
	// those before it with which a call may still be under way.
	remembered = 4
	// maxToken bounds a token, in bytes.
	maxToken = 16 << 10
)

// Token is a secret and how long it holds.
type Token struct {
	Value string
	// Expires is zero where nobody said.
	Expires time.Time
}

// Source fetches tokens.
type Source interface {
	// Fetch gets a token within the deadline of ctx.
	Fetch(ctx context.Context) (Token, error)
	// Keep is how long a token may be kept that does not say when it expires.
	Keep() time.Duration
}

// Keeper keeps the token of one server, or of one subject at it. It is safe for concurrent use.
type Keeper struct {
	source Source
	now    func() time.Time
	// fetching has room for the one who fetches.
	fetching chan struct{}

	mu       sync.Mutex
	token    Token
	until    time.Time // when the token, or the failure, is not believed any more
	failure  error
	secrets  []string
	redactor project.Redactor
}

// NewKeeper makes a Keeper that fetches from source.
func NewKeeper(source Source, now func() time.Time) *Keeper {
	return &Keeper{source: source, now: now, fetching: make(chan struct{}, 1)}
}

// Token gives a token that holds for a while. It ends with ctx.
func (k *Keeper) Token(ctx context.Context) (Token, error) {
	if t, err, known := k.kept(); known {
		return t, err
	}
	select {
	case k.fetching <- struct{}{}:
	case <-ctx.Done():
		return Token{}, fmt.Errorf("credential: %w", ctx.Err())
	}
	defer func() { <-k.fetching }()
	if t, err, known := k.kept(); known { // somebody else has fetched it meanwhile
		return t, err
	}
	bounded, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	t, err := k.source.Fetch(bounded)
	if err == nil {
		err = usable(t, k.now())
	}
	return k.keep(ctx, t, err)
}

// kept gives what is known already.
func (k *Keeper) kept() (t Token, err error, known bool) { //nolint:revive // known is about both
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.now().Before(k.until) {
		return Token{}, nil, false
	}
	return k.token, k.failure, true
}

func (k *Keeper) keep(ctx context.Context, t Token, err error) (Token, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if err != nil {
		err = fmt.Errorf("credential: %w", err)
		if ctx.Err() == nil && !errors.Is(err, ErrNoAssertion) { // else it is the caller's failure alone
			k.token, k.failure, k.until = Token{}, err, now.Add(failureLife)
		}
		return Token{}, err
	}
	k.token, k.failure, k.until = t, nil, now.Add(k.source.Keep())
	if !t.Expires.IsZero() {
		life := t.Expires.Sub(now)
		k.until = t.Expires.Add(-min(maxMargin, life/10))
	}
	k.remember(t.Value)
	return t, nil
}

// remember cuts a secret out of what is shown from now on.
func (k *Keeper) remember(secret string) {
	if slices.Contains(k.secrets, secret) {
		return
	}
	if k.secrets = append(k.secrets, secret); len(k.secrets) > remembered {
		k.secrets = k.secrets[1:]
	}
	k.redactor = project.NewRedactor(k.secrets...)
}

// Refused says that a server did not take a token. Unless it was replaced
// meanwhile, the next caller fetches another.
func (k *Keeper) Refused(value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.token.Value == value {
		k.until = time.Time{}
	}
}

// Redactor cuts out the tokens that are or were in use.
func (k *Keeper) Redactor() project.Redactor {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.redactor
}

// usable refuses what cannot be put into a header or cut out of a result.
func usable(t Token, now time.Time) error {
	switch {
	case len(t.Value) < project.MinSecret || len(t.Value) > maxToken:
		return fmt.Errorf("a token has to have %d to %d characters", project.MinSecret, maxToken)
	case strings.ContainsFunc(t.Value, func(r rune) bool { return r < ' ' || r > '~' }):
		return errors.New("a token of other characters than printable ASCII")
	case !t.Expires.IsZero() && !t.Expires.After(now):
		return errors.New("the token has expired already")
	}
	return nil
}
