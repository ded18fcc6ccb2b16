// Package demomodel is a deterministic, stateless model on the OpenAI Chat
// Completions wire. It needs no key and no network, so that one machine can
// show a whole run, and tests can make a model do exactly one thing.
//
// It obeys the lines of the last user message that begin with ">>":
//
//	>>call TOOL_ID {json}   ask for a tool; several lines ask for several at once
//	>>say TEXT              say one line
//	>>think TEXT            think one line (reasoning_content)
//	>>repeat N TEXT         say TEXT N times, blanks between
//	>>sleep MS              wait
//	>>usage IN OUT          report these token counts with every answer to the message
//	>>error STATUS          answer with this HTTP status instead
//	>>reset                 break the stream here
//
// A message with calls is answered in two parts. What stands before the first
// call belongs to the answer that asks for the tools. The rest belongs to the
// answer that follows the results, after a text that says what came back; that
// answer never asks again. To a message without commands the model answers in
// one sentence that names what it remembers.
//
// "Remembers" is meant literally: the model keeps nothing between requests, so
// all that it can name are the messages it was just sent. A conversation that
// goes on in another process is remembered exactly as far as its thread state
// was committed.
//
// The same request always gets the same answer, down to its ids.
package demomodel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Path is the one route that the model serves, with POST.
const Path = "/v1/chat/completions"

const (
	// maxRequest bounds the request body, in bytes.
	maxRequest = 4 << 20
	// retryAfter is what a scripted 429 or 503 asks for, in seconds.
	retryAfter = 1
)

// Model answers Chat Completions requests. It has no state and is safe for
// concurrent use.
type Model struct{}

// New returns the demo model.
func New() *Model { return &Model{} }

// ServeHTTP answers POST [Path] with one completion, or with a stream of chunks
// where the request says "stream": true. What it refuses, it refuses with the
// error body of the wire: 400 for a malformed request, 404, 405, and 413 above
// 4 MiB. A scripted reset, and a client that goes away, panic with
// [http.ErrAbortHandler]: an answer that is not whole never ends cleanly.
func (*Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != Path {
		refuse(w, http.StatusNotFound, "There is no such route.")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "Use POST.")
		return
	}
	req, err := decode(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		refuseDecode(w, err)
		return
	}
	serve(r.Context(), w, req)
}

func serve(ctx context.Context, w http.ResponseWriter, req *request) {
	p := req.plan()
	if status, wait := p.failure(); status != 0 {
		if err := pause(ctx, wait); err != nil {
			panic(http.ErrAbortHandler)
		}
		refuse(w, status, fmt.Sprintf("The script asked for status %d.", status))
		return
	}
	var out sink
	if req.Stream {
		out = newStream(w, req)
	} else {
		out = newWhole(w, req)
	}
	// A client that went away and a scripted reset look the same from outside:
	// the answer breaks off.
	if err := p.run(ctx, out); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func refuseDecode(w http.ResponseWriter, err error) {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		refuse(w, http.StatusRequestEntityTooLarge, "The request is larger than 4 MiB.")
		return
	}
	refuse(w, http.StatusBadRequest, err.Error())
}

// refuse writes the wire's error body.
func refuse(w http.ResponseWriter, status int, message string) {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	body := errorBody{Error: errorDetail{Message: message, Type: kind, Code: "demo_" + strconv.Itoa(status)}}
	writeJSON(w, status, body)
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
