package persubject

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cofferdam.dev/services/toolbroker/internal/credential"
)

// Bounds of a server's pool where the Config names none.
const (
	// MaxSubjects is how many subjects' tokens are kept.
	MaxSubjects = 1024
	// MaxSessions is how many subjects' sessions are kept.
	MaxSessions = 128
	// Idle is how long a session is kept that nobody uses.
	Idle = 2 * time.Minute
	// Forget is after how long a subject's token is no longer kept that nobody uses.
	Forget = time.Hour
)

// ErrBusy says that as many subjects are being served as the pool has room for.
var ErrBusy = errors.New("persubject: too many subjects at once")

// errClosed says that the pool is closed.
var errClosed = errors.New("persubject: closed")

// Subject is for whom a server is called. Two organizations may know two people by
// one name.
type Subject struct{ Organization, ID string }

// Session is a session with the server.
type Session interface {
	// Done is closed when the session is over.
	Done() <-chan struct{}
	// Close ends it, and waits for that.
	Close() error
}

// Config of a Pool.
type Config[S Session] struct {
	// Source fetches a subject's token, on behalf of the context's call.
	Source credential.Source
	// Connect negotiates a session that uses the keeper's tokens and no others.
	Connect func(ctx context.Context, k *credential.Keeper) (S, error)
	// Now is the clock of tokens.
	Now func() time.Time
	// MaxSubjects, MaxSessions and Idle are by default the constants of these names.
	MaxSubjects, MaxSessions int
	Idle                     time.Duration
}

// Pool has the sessions. Run it, and it is safe for concurrent use.
type Pool[S Session] struct {
	cfg Config[S]

	mu       sync.Mutex
	entries  map[Subject]*entry[S]
	sessions int // that are there, or being made
	closed   bool
	closing  sync.WaitGroup // of sessions; begun under mu while not closed
}

// entry is what is one subject's.
type entry[S Session] struct {
	keeper *credential.Keeper
	// turn has room for the one who connects.
	turn chan struct{}

	// Under the pool's mu.
	session   S
	connected bool
	users     int
	used      time.Time
}

// New makes a Pool.
func New[S Session](cfg Config[S]) *Pool[S] {
	if cfg.MaxSubjects <= 0 {
		cfg.MaxSubjects = MaxSubjects
	}
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = MaxSessions
	}
	if cfg.Idle <= 0 {
		cfg.Idle = Idle
	}
	return &Pool[S]{cfg: cfg, entries: make(map[Subject]*entry[S])}
}

// Run closes sessions that nobody uses until ctx ends, and then all of them, and
// waits for that.
func (p *Pool[S]) Run(ctx context.Context) {
	tick := time.NewTicker(p.cfg.Idle / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.sweep()
		case <-ctx.Done():
			p.close()
			return
		}
	}
}

// Held is a session in use. Release gives it back, once.
type Held[S Session] struct {
	Session S
	// Keeper is that of the subject's token.
	Keeper  *credential.Keeper
	Release func()
}

// Take gives the subject's session, which is made where there is none. It ends
// with ctx. ErrBusy.
func (p *Pool[S]) Take(ctx context.Context, subject Subject) (Held[S], error) {
	e, err := p.enter(subject)
	if err != nil {
		return Held[S]{}, err
	}
	s, err := p.session(ctx, e)
	if err != nil {
		p.leave(e)
		return Held[S]{}, err
	}
	return Held[S]{Session: s, Keeper: e.keeper, Release: sync.OnceFunc(func() { p.leave(e) })}, nil
}

// enter counts a user of the subject's entry.
func (p *Pool[S]) enter(subject Subject) (*entry[S], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	e := p.entries[subject]
	if e == nil {
		if len(p.entries) >= p.cfg.MaxSubjects {
			name, oldest := p.oldest(func(*entry[S]) bool { return true })
			if oldest == nil {
				return nil, ErrBusy
			}
			p.drop(oldest)
			delete(p.entries, name)
		}
		e = &entry[S]{keeper: credential.NewKeeper(p.cfg.Source, p.cfg.Now), turn: make(chan struct{}, 1)}
		p.entries[subject] = e
	}
	e.users++
	return e, nil
}

func (p *Pool[S]) leave(e *entry[S]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.users--
	e.used = time.Now()
}

// session gives that of an entry in use; one at a time makes it.
func (p *Pool[S]) session(ctx context.Context, e *entry[S]) (S, error) {
	var none S
	if s, ok := p.live(e); ok {
		return s, nil
	}
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	defer func() { <-e.turn }()
	if s, ok := p.live(e); ok { // somebody else has made it meanwhile
		return s, nil
	}
	if err := p.reserve(); err != nil {
		return none, err
	}
	// The token first: without one there is nothing to say to the server.
	_, err := e.keeper.Token(ctx)
	var s S
	if err == nil {
		s, err = p.cfg.Connect(ctx, e.keeper)
	}
	if err == nil && p.adopt(e, s) {
		return s, nil
	}
	if err == nil { // the pool was closed meanwhile, and waits for nothing any more
		err = errors.Join(errClosed, s.Close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions--
	return none, err
}

// adopt makes a session that of an entry, unless the pool is closed.
func (p *Pool[S]) adopt(e *entry[S], s S) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		e.session, e.connected = s, true
	}
	return !p.closed
}

// live gives the session of an entry if it can still be spoken to.
func (p *Pool[S]) live(e *entry[S]) (s S, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !e.connected {
		return s, false
	}
	select {
	case <-e.session.Done():
		p.drop(e)
		return s, false
	default:
		return e.session, true
	}
}

// reserve makes room for one session more.
func (p *Pool[S]) reserve() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if p.sessions >= p.cfg.MaxSessions {
		_, oldest := p.oldest(func(e *entry[S]) bool { return e.connected })
		if oldest == nil {
			return ErrBusy
		}
		p.drop(oldest)
	}
	p.sessions++
	return nil
}

// oldest is the entry that was not used for longest, of those that nobody uses.
func (p *Pool[S]) oldest(among func(*entry[S]) bool) (name Subject, oldest *entry[S]) {
	for n, e := range p.entries {
		if e.users == 0 && among(e) && (oldest == nil || e.used.Before(oldest.used)) {
			name, oldest = n, e
		}
	}
	return name, oldest
}

// drop closes the session of an entry, if it has one.
func (p *Pool[S]) drop(e *entry[S]) {
	if !e.connected {
		return
	}
	s := e.session
	var none S
	e.session, e.connected = none, false
	p.sessions--
	p.closing.Go(func() { _ = s.Close() }) // it is of no use any more, whatever this says
}

// sweep closes what nobody has used for a while, and forgets what nobody has used
// for long.
func (p *Pool[S]) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, e := range p.entries {
		if e.users > 0 {
			continue
		}
		if unused := time.Since(e.used); unused >= p.cfg.Idle {
			p.drop(e)
			if unused >= Forget {
				delete(p.entries, name)
			}
		}
	}
}

func (p *Pool[S]) close() {
	p.mu.Lock()
	p.closed = true
	for _, e := range p.entries {
		p.drop(e)
	}
	clear(p.entries)
	p.mu.Unlock()
	p.closing.Wait()
}

// String tells nothing of the subjects.
func (p *Pool[S]) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d subjects, %d sessions", len(p.entries), p.sessions)
}
