package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// watchWorkloadAPI follows the Workload API at addr until the source is closed.
//
// go-spiffe's own X509Source ends its watch for good, and without a word, when the API answers Canceled or
// InvalidArgument once, as an agent may that is being restarted; the process would find out when its SVID expires.
// Here only Close ends the watch. gRPC would also wait up to two minutes before it connects again; here it is seconds.
func (s *source) watchWorkloadAPI(ctx context.Context, addr string) error {
	client, err := workloadapi.New(ctx,
		workloadapi.WithAddr(addr),
		workloadapi.WithBackoffStrategy(retryStrategy{}),
		workloadapi.WithDialOptions(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: 2, Jitter: 0.2, MaxDelay: lastRetry},
			MinConnectTimeout: lastRetry,
		})))
	if err != nil {
		return fmt.Errorf("identity: Workload API: %w", err)
	}
	watch := func(ctx context.Context) {
		retry := retryStrategy{}.NewBackoff()
		for ctx.Err() == nil {
			// The error was given to the watcher, who keeps it.
			_ = client.WatchX509Context(ctx, &workloadWatcher{source: s, ctx: ctx, retry: retry})
			wait(ctx, retry.Next())
		}
	}
	s.background(ctx, watch, client.Close)
	return nil
}

// workloadWatcher takes what the Workload API pushes.
type workloadWatcher struct {
	source *source
	ctx    context.Context //nolint:containedctx // the callbacks of go-spiffe have none; it is that of the one watch
	retry  workloadapi.Backoff
}

// OnX509ContextUpdate takes the SVID that this process wants out of those that it was given.
func (w *workloadWatcher) OnX509ContextUpdate(update *workloadapi.X509Context) {
	w.retry.Reset()
	if err := w.take(update); err != nil {
		w.OnX509ContextWatchError(err)
	}
}

func (w *workloadWatcher) take(update *workloadapi.X509Context) error {
	svid := update.DefaultSVID() // the update of go-spiffe holds one at least
	for _, s := range update.SVIDs {
		if s.ID == w.source.want {
			svid = s
			break
		}
	}
	bundle, err := update.Bundles.GetX509BundleForTrustDomain(svid.ID.TrustDomain())
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return w.source.offer(svid, bundle)
}

// OnX509ContextWatchError keeps the reason for whoever waits in Open. What is current stays current until it expires.
func (w *workloadWatcher) OnX509ContextWatchError(err error) {
	if err == nil || w.ctx.Err() != nil {
		return
	}
	w.source.note(err)
	w.source.log.WarnContext(w.ctx, "no update from the Workload API; trying again", "error", err)
}

// retryStrategy doubles from firstRetry to lastRetry.
type retryStrategy struct{}

// NewBackoff implements workloadapi.BackoffStrategy.
func (retryStrategy) NewBackoff() workloadapi.Backoff { return &retryBackoff{next: firstRetry} }

type retryBackoff struct{ next time.Duration }

// Next implements workloadapi.Backoff.
func (b *retryBackoff) Next() time.Duration {
	d := b.next
	b.next = min(2*d, lastRetry)
	return d
}

// Reset implements workloadapi.Backoff.
func (b *retryBackoff) Reset() { b.next = firstRetry }

// wait returns after d or when ctx is done.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
