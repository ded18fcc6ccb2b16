package rpc

import (
	"context"
	"net/http"
	"time"
)

// bodyTimeout is how long the body of a plain route may take to arrive.
const bodyTimeout = 30 * time.Second

type responseKey struct{}

// withResponse lets what reads and writes on either wire bound how long it takes.
func withResponse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), responseKey{}, http.NewResponseController(w))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// boundWrites ends every write at a time: a caller that keeps its connection and
// reads nothing holds nothing here for ever. The returned function undoes it, for
// the connection may serve another request.
func boundWrites(ctx context.Context, until time.Time) (undo func()) {
	return limit(ctx, until, (*http.ResponseController).SetWriteDeadline)
}

// boundReads ends the reading of the body after a while.
func boundReads(ctx context.Context, d time.Duration) (undo func()) {
	return limit(ctx, time.Now().Add(d), (*http.ResponseController).SetReadDeadline)
}

func limit(ctx context.Context, until time.Time, set func(*http.ResponseController, time.Time) error) (undo func()) {
	response, ok := ctx.Value(responseKey{}).(*http.ResponseController)
	if !ok || set(response, until) != nil { // a writer without deadlines is one of a test
		return func() {}
	}
	return func() { _ = set(response, time.Time{}) } // it could be set, so it can be unset
}
