package facadeclient

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/fault"
)

const (
	// attempts of one request whose outcome is unknown. Each is the same under the
	// same key, and the service makes its effect happen once.
	attempts = 6
	// firstPause of a worker: with those after it about 3 s, in which a service that
	// was restarted comes back.
	firstPause = 100 * time.Millisecond
)

// outcome is what is known of a request that failed.
type outcome struct {
	err error
	// unknown says that its effect may have happened: some attempt had a
	// connection, so it may have arrived, and no answer says what became of it.
	unknown bool
	// before says that an earlier attempt may have had its effect, whatever the
	// last one was answered. An answer that comes from the record settles that; a
	// refusal at the door does not.
	before bool
}

// mayHaveActed says that nobody knows whether an effect happened: a caller that
// asked again under another key would make it happen twice. A run that is over is
// told so instead, which says as little of the effect; a refusal would say that
// there was none.
func (o outcome) mayHaveActed(ctx context.Context) bool {
	if o.before && refused(o.err) {
		return true
	}
	return o.unknown && ctx.Err() == nil && !fault.Is(o.err, fault.Cancelled)
}

// refused tells an answer at the door, which says nothing of an earlier attempt,
// from one that the ledger gave or that ends the run.
func refused(err error) bool {
	switch fault.CodeOf(err) {
	case fault.ToolDenied, fault.ToolNotAllowed, fault.ToolArgumentsInvalid, fault.ToolUnavailable, fault.AccessDenied, fault.CapabilityScope,
		fault.CapabilityMissing, fault.CapabilityInvalid, fault.AudienceMismatch, fault.Unauthenticated, fault.CallerNotAllowed, fault.RateLimited,
		fault.Capacity, fault.NotFound, fault.HandleDenied, fault.HandleExpired, fault.MemoryScopeDenied, fault.ApprovalRequired:
		return true
	default:
		return false
	}
}

// repeat does the same request again while nobody knows what became of it, after
// a pause that doubles each time.
func repeat(ctx context.Context, pause time.Duration, do func(context.Context) error) outcome {
	return repeatWhile(ctx, pause, worthAgain, do)
}

// settle is repeat for an effect whose own store knows it by its key: where the
// ledger cannot tell what became of it, the same request makes it so.
func settle(ctx context.Context, pause time.Duration, do func(context.Context) error) outcome {
	return repeatWhile(ctx, pause, func(ctx context.Context, err error) bool {
		return worthAgain(ctx, err) || ctx.Err() == nil && fault.Is(err, fault.ToolOutcomeUnknown)
	}, do)
}

func repeatWhile(ctx context.Context, pause time.Duration, worth func(context.Context, error) bool, do func(context.Context) error) outcome {
	var out outcome
	for n := 1; ; n++ {
		var connected atomic.Bool
		out.err = do(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
		}))
		if out.err == nil {
			return outcome{}
		}
		again := worth(ctx, out.err)
		out.before = out.unknown
		out.unknown = again && (out.unknown || connected.Load() && mayHaveHappened(out.err))
		if !again || n == attempts {
			return out
		}
		select {
		case <-ctx.Done():
			out.err = fault.From(ctx.Err(), "facadeclient")
			return out
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// worthAgain says whether the same request may have another answer: the reply
// was lost, or the service itself was in trouble. A service that is being
// restarted cancels what it works on.
func worthAgain(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	switch fault.CodeOf(err) {
	case fault.DependencyUnavailable, fault.PersistenceFailed, fault.ThreadDurabilityUncertain, fault.Internal, fault.Cancelled:
		return true
	default:
		return false
	}
}

// mayHaveHappened is false where the service itself says that nothing happened.
func mayHaveHappened(err error) bool {
	var answer *connect.Error
	said := errors.As(err, &answer) && len(answer.Details()) > 0
	return !said || !fault.Is(err, fault.DependencyUnavailable) && !fault.Is(err, fault.PersistenceFailed)
}
