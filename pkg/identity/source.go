package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

var (
	// ErrClosed is returned by a [Source] after Close.
	ErrClosed = errors.New("identity: source is closed")
	// ErrExpired is returned by a [Source] whose SVID has run out because no rotation arrived.
	ErrExpired = errors.New("identity: own SVID has expired")
)

// openTimeout bounds [Open] when its context has no deadline.
const openTimeout = 30 * time.Second

// Source holds the identity of this process and the authorities that it trusts. It is safe for concurrent use.
//
// The identity never changes; its SVID and the authorities do. Two calls return the same pointer exactly as long as
// nothing was rotated between them, and what they return must not be modified.
type Source interface {
	// ID is the SPIFFE ID of this process. Its trust domain is the only one whose peers are accepted.
	ID() spiffeid.ID
	// SVID returns the current SVID, [ErrExpired] if its time has run out, or [ErrClosed].
	SVID() (*x509svid.SVID, error)
	// Bundle returns the current authorities of the trust domain of ID, or [ErrClosed]. There is no way to ask for
	// those of another one.
	Bundle() (*x509bundle.Bundle, error)
	// Close stops following rotations and waits for the goroutine that did. It can be repeated. New handshakes fail
	// afterwards; open connections are left alone.
	Close() error
}

// Open starts a source and waits for its first SVID until ctx is done, at most 30 seconds if ctx has no deadline. ctx
// bounds only the wait: a source that was opened follows rotations until Close. A nil log discards.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	src := &source{want: cfg.ID, log: log, ready: make(chan struct{})}
	if cfg.WorkloadAPI != "" {
		if err := src.watchWorkloadAPI(ctx, cfg.WorkloadAPI); err != nil {
			return nil, err
		}
	} else {
		src.watchFiles(ctx, cfg)
	}
	select {
	case <-src.ready:
		return src, nil
	case <-ctx.Done():
		err := fmt.Errorf("identity: no SVID: %w", ctx.Err())
		if last := src.lastError(); last != nil {
			err = fmt.Errorf("%w (last attempt: %w)", err, last)
		}
		return nil, errors.Join(err, src.Close())
	}
}

// material is what one rotation brings. It is replaced as a whole.
type material struct {
	svid   *x509svid.SVID
	bundle *x509bundle.Bundle
}

// source is the part that both kinds of source share: what is current, and the goroutine that renews it.
type source struct {
	want spiffeid.ID // zero until the first SVID if the configuration leaves it open; written before ready closes
	log  *slog.Logger

	current atomic.Pointer[material]
	ready   chan struct{} // closed by the first material

	mu   sync.Mutex
	last error // why the last attempt failed; nil after one that did not

	closed atomic.Bool
	stop   func() error // set by background
}

func (s *source) ID() spiffeid.ID { return s.want }

func (s *source) SVID() (*x509svid.SVID, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	svid := s.current.Load().svid
	// A peer would refuse it anyway. Said here, the log names the cause on the right side.
	if end := svid.Certificates[0].NotAfter; time.Now().After(end) {
		return nil, fmt.Errorf("%w at %s: look at the Workload API or at what renews the files", ErrExpired, end.UTC().Format(time.RFC3339))
	}
	return svid, nil
}

func (s *source) Bundle() (*x509bundle.Bundle, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	return s.current.Load().bundle, nil
}

func (s *source) Close() error {
	s.closed.Store(true)
	return s.stop()
}

// background runs f in the goroutine that renews. Close ends its context, waits for it, and then calls release. ctx
// gives values only: how long the caller of Open waits has nothing to do with how long the source lives.
func (s *source) background(ctx context.Context, f func(context.Context), release func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	s.stop = sync.OnceValue(func() error {
		cancel()
		wg.Wait()
		return release()
	})
}

// offer makes svid and bundle current if they are usable, and otherwise leaves what there is. It is called by the one
// goroutine that renews.
func (s *source) offer(svid *x509svid.SVID, bundle *x509bundle.Bundle) error {
	if !s.want.IsZero() && svid.ID != s.want {
		return fmt.Errorf("identity: offered %q, want %q", svid.ID, s.want)
	}
	if bundle.TrustDomain() != svid.ID.TrustDomain() {
		return fmt.Errorf("identity: offered the bundle of %q for an SVID of %q", bundle.TrustDomain(), svid.ID.TrustDomain())
	}
	if bundle.Empty() {
		return fmt.Errorf("identity: the bundle of %q has no authority", bundle.TrustDomain())
	}
	if end := svid.Certificates[0].NotAfter; time.Now().After(end) {
		return fmt.Errorf("identity: offered an SVID that expired at %s", end.UTC().Format(time.RFC3339))
	}
	s.note(nil)
	if s.current.Swap(&material{svid: svid, bundle: bundle}) == nil {
		s.want = svid.ID // the first one pins the identity for as long as the source lives
		close(s.ready)
	}
	return nil
}

func (s *source) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = err
}

func (s *source) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
