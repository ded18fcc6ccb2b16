package mcpcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// What became of a request that was not answered.
var (
	// ErrNotSent says that no byte of the request left: whatever it asks for did
	// not begin.
	ErrNotSent = errors.New("mcp: the request was not sent")
	// ErrNoAnswer says that the request left, in part or as a whole, and that its
	// answer did not come: nobody knows what it did.
	ErrNoAnswer = errors.New("mcp: the request was not answered")
)

// errWithdrawn keeps a request from leaving after its caller was told that
// nothing was sent. The SDK takes the code to mean that this one message was
// refused and that the connection is well.
var errWithdrawn = &jsonrpc.Error{Code: -32005, Message: "mcp: the request was withdrawn before it was sent"}

// Answer is what a server answered to a request, as it stands in its message.
type Answer struct {
	// Result is JSON text that nobody has checked; it may hold bytes that are not
	// UTF-8. It is empty when Error is set.
	Result json.RawMessage
	// Error is the JSON-RPC error that came in place of a result.
	Error *jsonrpc.Error
	// Asked are the parameters of the first elicitation/create that came in the
	// midst of the call and was answered with cancel; empty where none came. They
	// are JSON text that nobody has checked.
	Asked json.RawMessage
	// Progress is how many notifications of progress came.
	Progress int
}

// Exchange is one request and its answer. A tap finds it with [From].
type Exchange struct {
	// Method of the request. A message of another method is not the request.
	Method string
	// by is when the request must have left at the latest; zero is any time.
	by time.Time
	// headers says that the SDK has to know which tools want arguments in headers.
	headers bool
	// input answers a question that may come in the midst of the call.
	input *Input
	// token of progress; empty where none is wanted. progressed is called for each
	// notification of it.
	token      string
	progressed func()

	mu        sync.Mutex
	withdrawn bool
	late      bool // it was withdrawn because its time was over
	sent      bool
	answered  bool
	answer    Answer
	given     bool // the input was
	asked     json.RawMessage
	progress  int
}

type exchangeKey struct{}

// From gives the exchange on whose behalf the SDK writes, or nil.
func From(ctx context.Context) *Exchange {
	x, _ := ctx.Value(exchangeKey{}).(*Exchange)
	return x
}

// Leave asks whether the request may leave now, and from then on it counts as
// sent: a write that fails half way has sent something.
func (x *Exchange) Leave() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.withdrawn || (!x.by.IsZero() && !time.Now().Before(x.by)) {
		x.late = !x.withdrawn
		x.withdrawn = true
		return errWithdrawn
	}
	x.sent = true
	return nil
}

// Abandoned says that the request left and was not answered.
func (x *Exchange) Abandoned() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sent && !x.answered
}

// By is when the request must have left at the latest, if that is bounded.
func (x *Exchange) By() (t time.Time, bounded bool) { return x.by, !x.by.IsZero() }

// Arrive takes the answer. It gives what the SDK may see in its place.
func (x *Exchange) Arrive(r *jsonrpc.Response) *jsonrpc.Response {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.answered {
		x.answered = true
		x.answer = answerOf(r)
	}
	if r.Error != nil {
		return &jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "answered with an error"}}
	}
	return &jsonrpc.Response{ID: r.ID, Result: x.plain(r.Result)}
}

func answerOf(r *jsonrpc.Response) Answer {
	if r.Error == nil {
		return Answer{Result: r.Result}
	}
	wire, ok := errors.AsType[*jsonrpc.Error](r.Error)
	if !ok {
		wire = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: r.Error.Error()}
	}
	return Answer{Error: wire}
}

// outcome settles what became of the request; from then on it cannot leave any
// more. err is why the SDK has no answer, and of it the text is told only where it
// is known to quote nothing that the server sent.
func (x *Exchange) outcome(ctx context.Context, err error) (Answer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.withdrawn = true
	what := ErrNotSent
	if x.sent {
		what = ErrNoAnswer
	}
	known, loggable := errors.AsType[*LoggableError](err)
	switch {
	case x.answered:
		a := x.answer
		a.Asked, a.Progress = x.asked, x.progress
		return a, nil
	case ctx.Err() != nil:
		return Answer{}, fmt.Errorf("%w: %w", what, context.Cause(ctx))
	case x.late:
		return Answer{}, fmt.Errorf("%w: it was too late", what)
	case loggable:
		return Answer{}, fmt.Errorf("%w: %w", what, known)
	default:
		return Answer{}, fmt.Errorf("%w: the connection broke", what)
	}
}
