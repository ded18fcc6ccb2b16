package proxy

import (
	"context"
	"io"
	"net/http"
)

// inProcess carries requests to a handler of this process, so that the demo
// model is an upstream like any other: the same checks, the same failures.
type inProcess struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper]. The handler runs until its answer is
// closed; Close waits for it.
func (t inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	r, w := io.Pipe()
	answer := &pipeAnswer{header: http.Header{}, pipe: w, begun: make(chan struct{})}
	body := &pipeBody{PipeReader: r, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(body.ended)
		defer func() { answer.end(recover()) }()
		t.handler.ServeHTTP(answer, req.WithContext(ctx))
	}()
	select {
	case <-answer.begun:
	case <-ctx.Done():
		_ = body.Close() // waits for the handler; a pipe closes without an error
		return nil, ctx.Err()
	}
	if answer.status == 0 { // it ended before it began
		_ = body.Close()
		return nil, answer.failure
	}
	return &http.Response{
		StatusCode: answer.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.sent, Body: body, ContentLength: -1, Request: req,
	}, nil
}

// pipeAnswer is the handler's end. status, sent and failure are written before
// begun is closed and only read after it.
type pipeAnswer struct {
	header  http.Header
	pipe    *io.PipeWriter
	begun   chan struct{}
	status  int
	sent    http.Header
	failure error
}

// Header implements [http.ResponseWriter].
func (a *pipeAnswer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *pipeAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	}
}

// Write implements [http.ResponseWriter]. It waits for the reader, so a slow
// caller holds the model back.
func (a *pipeAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.pipe.Write(p)
}

// Flush implements [http.Flusher]: there is nothing between writer and reader.
func (a *pipeAnswer) Flush() {}

// end closes the answer as net/http would: an abort is a cut, and so is a panic.
func (a *pipeAnswer) end(panicked any) {
	var err error
	switch panicked {
	case nil:
		a.WriteHeader(http.StatusOK)
	case http.ErrAbortHandler:
		err = io.ErrUnexpectedEOF
	default:
		err = errPanic
	}
	if a.status == 0 {
		a.failure = err
		close(a.begun)
	}
	_ = a.pipe.CloseWithError(err) // never fails
}

type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	ended  chan struct{}
}

// Close ends the handler and waits for it.
func (b *pipeBody) Close() error {
	b.cancel()
	_ = b.PipeReader.Close() // never fails
	<-b.ended
	return nil
}
