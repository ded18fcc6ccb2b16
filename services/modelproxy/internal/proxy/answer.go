package proxy

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"cofferdam.dev/pkg/fault"
)

const (
	mediaJSON   = "application/json"
	mediaStream = "text/event-stream"
)

func mediaType(stream bool) string {
	if stream {
		return mediaStream
	}
	return mediaJSON
}

// answer is what an upstream answers, still to be read.
type answer struct {
	status int
	body   io.ReadCloser
	watch  *watch
	key    secret
	idle   time.Duration
	left   int64 // bytes that may still come, keep-alives included
}

// Read implements [io.Reader]. Only the wait for the upstream counts as its
// silence, not the time that the caller takes in between.
func (a *answer) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, errTooLarge
	}
	a.watch.expect(a.idle, errIdle)
	n, err := a.body.Read(p[:min(int64(len(p)), a.left)])
	a.watch.pause()
	a.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = transportFailure(a.watch.ctx, err, failed)
	}
	return n, err
}

// settle gives an upstream that has said all a moment to end its answer, so that
// the connection can be used again.
func (a *answer) settle() {
	const moment, most = 250 * time.Millisecond, 4 << 10
	a.watch.expect(moment, errIdle)
	_, _ = io.CopyN(io.Discard, a.body, most) // the caller has its answer already
	a.watch.pause()
}

// close ends the call, read to its end or not.
func (a *answer) close() {
	a.watch.end()
	_ = a.body.Close() // nothing more is wanted of it
}

// checkAnswer demands a whole answer of the right kind. What an endpoint says
// about a failure is not for the sandbox, but for one thing that a harness can
// mend: that the request does not fit the model's context.
func checkAnswer(res *http.Response, stream bool) error {
	if res.StatusCode == http.StatusBadRequest && contextFull(res.Body) {
		return fault.Wrap(errContextFull, fault.RequestTooLarge, "proxy")
	}
	if res.StatusCode != http.StatusOK {
		return statusFailure(res.StatusCode, res.Header)
	}
	if e := res.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return failed(errEncoded) // it was not asked for, and may be a bomb
	}
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || media != mediaType(stream) {
		return failed(errMedia)
	}
	return nil
}

// watch ends a call that waits too long, and remembers why.
type watch struct {
	ctx    context.Context //nolint:containedctx // it is the call
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func newWatch(ctx context.Context) *watch {
	ctx, cancel := context.WithCancelCause(ctx)
	return &watch{ctx: ctx, cancel: cancel}
}

// expect cancels the call with the cause w unless pause comes within d.
func (w *watch) expect(d time.Duration, cause reasonError) {
	w.timer = time.AfterFunc(d, func() { w.cancel(cause) })
}

func (w *watch) pause() { w.timer.Stop() }

// end releases what the call holds. It must follow every newWatch.
func (w *watch) end() { w.cancel(nil) }
