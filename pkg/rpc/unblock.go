package rpc

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// firstMessage is how long a request may take to send its first message,
	// whose envelope then has the deadline, or a plain route its body.
	firstMessage = 30 * time.Second
	// lastWords is how long an answer may still be written once the request's
	// context has ended.
	lastWords = 2 * time.Second
)

type connKey struct{}

// conn ends waits in the network. The end of a context does not wake a handler
// that waits for a peer which neither sends nor reads: only a deadline of the
// connection does.
type conn struct {
	rc       *http.ResponseController
	received sync.Once
}

// unblockable gives requests a conn.
func unblockable(next http.Handler, first time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &conn{rc: http.NewResponseController(w)}
		_ = c.rc.SetReadDeadline(time.Now().Add(first)) // a writer without deadlines is one of a test
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), connKey{}, c)))
	})
}

func connFrom(ctx context.Context) *conn {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return &conn{rc: http.NewResponseController(nil)}
	}
	return c
}

// arrived lifts the bound on the first message. On HTTP/1.1 it would otherwise
// end a request that has long been read.
func (c *conn) arrived() {
	c.received.Do(func() { _ = c.rc.SetReadDeadline(time.Time{}) })
}

// endWith ends all waits when ctx ends: at the deadline of the envelope, at the
// end of the server. stop must be called before the handler returns.
func (c *conn) endWith(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.rc.SetReadDeadline(time.Now())
		_ = c.rc.SetWriteDeadline(time.Now().Add(lastWords))
	})
	return func() {
		if !cancel() {
			<-done // the controller must not be used after the handler
		}
	}
}

// arriving lifts the bound once the body is read.
type arriving struct {
	io.ReadCloser
	conn *conn
}

func (a arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		a.conn.arrived()
	}
	return n, err
}
