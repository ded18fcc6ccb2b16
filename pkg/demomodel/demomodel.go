// Package demomodel is a deterministic, stateless model on the four wires that
// agents speak: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages
// and Gemini. It needs no key and no network, so that one machine can show a
// whole run, and tests can make a model do exactly one thing.
//
// It obeys the lines of the user's message that begin with ">>":
//
//	>>call TOOL_ID {json}   ask for a tool; several lines ask for several at once
//	>>bash COMMAND          ask for whichever shell tool is offered
//	>>say TEXT              say one line
//	>>think TEXT            think one line
//	>>repeat N TEXT         say TEXT N times, blanks between
//	>>sleep MS              wait
//	>>usage IN OUT          report these token counts with every answer to the message
//	>>error STATUS          answer with this HTTP status instead
//	>>reset                 break the stream here
//	>>truncate              end the stream here, without its terminal
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
// Agent programs put words of their own around the user's. The message that
// counts is the last text of the user that is more than an agent's note (text
// in tags, such as <system-reminder>); what stands before it belongs to turns
// that failed. Calls that agents make on the side, for a title, a summary or an
// answer by a JSON schema, are answered and never obeyed.
//
// On the route of OpenAI Embeddings it turns texts into lists of [Dimension]
// numbers: texts that share words, or parts of words, are near to each other.
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

const (
	// Path is the route of OpenAI Chat Completions.
	Path = "/v1/chat/completions"
	// PathResponses is the route of OpenAI Responses.
	PathResponses = "/v1/responses"
	// PathMessages is the route of Anthropic Messages.
	PathMessages = "/v1/messages"
	// PathCountTokens is where Anthropic's clients have tokens counted.
	PathCountTokens = "/v1/messages/count_tokens" //nolint:gosec // a route, no credential
	// PathEmbeddings is the route of OpenAI Embeddings.
	PathEmbeddings = "/v1/embeddings"
	// PathGemini is what a model's name and ":generateContent" or
	// ":streamGenerateContent" are added to.
	PathGemini = "/v1beta/models/"
)

// retryAfter is what a scripted 429 or 503 asks for, in seconds.
const retryAfter = 1

// Model answers requests on all wires. It has no state and is safe for
// concurrent use.
type Model struct{}

// New returns the demo model.
func New() *Model { return &Model{} }

// wire is one protocol that models are spoken to in.
type wire interface {
	// decode reads a request. Its errors say what to change and are safe to send.
	decode(raw []byte) (*request, error)
	// answer opens the answer to a request.
	answer(w http.ResponseWriter, r *request) sink
	// refusal is the body of an answer that is none.
	refusal(status int, message string) any
}

// wireOf is the wire of a request, or nil.
func wireOf(r *http.Request) wire {
	switch r.URL.Path {
	case Path, PathEmbeddings:
		return chat{}
	case PathResponses:
		return responses{}
	case PathMessages:
		return messages{}
	case PathCountTokens:
		return counting{}
	default:
		return geminiOf(r.URL)
	}
}

// ServeHTTP answers a POST to one of the routes, whole or as a stream, whichever
// the request asks for. What it refuses, it refuses with the error body of the
// wire: 400 for a malformed request, 404, 405, 413 above 4 MiB, and 415 for a
// body that is compressed with anything but gzip. A scripted reset, and a client
// that goes away, panic with [http.ErrAbortHandler]: an answer that is not whole
// never ends cleanly, unless the script asks for just that.
func (*Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	on := wireOf(r)
	if on == nil {
		refuse(w, chat{}, http.StatusNotFound, "There is no such route.")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, on, http.StatusMethodNotAllowed, "Use POST.")
		return
	}
	raw, refused := readBody(w, r)
	if refused == nil && r.URL.Path == PathEmbeddings {
		serveEmbeddings(w, raw)
		return
	}
	if refused != nil {
		refuse(w, on, refused.status, refused.message)
		return
	}
	req, err := on.decode(raw)
	if err != nil {
		refuse(w, on, http.StatusBadRequest, err.Error())
		return
	}
	if _, ok := on.(counting); ok {
		writeJSON(w, http.StatusOK, tokenCount{InputTokens: req.promptWords()})
		return
	}
	serve(r.Context(), w, on, req)
}

func serve(ctx context.Context, w http.ResponseWriter, on wire, req *request) {
	p := req.plan()
	if status, wait := p.failure(); status != 0 {
		if err := pause(ctx, wait); err != nil {
			panic(http.ErrAbortHandler)
		}
		refuse(w, on, status, fmt.Sprintf("The script asked for status %d.", status))
		return
	}
	// A client that went away and a scripted reset look the same from outside:
	// the answer breaks off.
	if err := p.run(ctx, on.answer(w, req)); err != nil && !errors.Is(err, errTruncate) {
		panic(http.ErrAbortHandler)
	}
}

// refuse writes an error body of the wire.
func refuse(w http.ResponseWriter, on wire, status int, message string) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	writeJSON(w, status, on.refusal(status, message))
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
