package facadeclient

import (
	"context"
	"errors"
	"net"
	"time"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/fault"
)

const (
	// attempts of one request whose outcome is unknown. Each is the same under the
	// same key, and the service makes its effect happen once.
	attempts = 6
	// firstPause doubles with each attempt: together about 3 s, in which a service
	// that was restarted comes back.
	firstPause = 100 * time.Millisecond
)

// outcome is what is known of a request that failed.
type outcome struct {
	err error
	// unknown says that its effect may have happened: some attempt may have
	// arrived, and no answer says what became of it.
	unknown bool
}

// repeat does the same request again while nobody knows what became of it. Its
// last error is a fault.
func repeat(ctx context.Context, do func() error) outcome {
	var out outcome
	pause := firstPause
	for n := 1; ; n++ {
		out.err = do()
		if out.err == nil {
			return outcome{}
		}
		again := worthAgain(ctx, out.err)
		out.unknown = again && (out.unknown || mayHaveHappened(out.err))
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

// mayHaveHappened is false where the request did not leave, and where the
// service says that nothing happened.
func mayHaveHappened(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	var answer *connect.Error
	said := errors.As(err, &answer) && len(answer.Details()) > 0
	return !said || !fault.Is(err, fault.DependencyUnavailable) && !fault.Is(err, fault.PersistenceFailed)
}
