package loopback

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

// maxErrorBody is how much of an error is read for its code.
const maxErrorBody = 64 << 10

// serveModel carries one request of the model endpoint. A stream that does not
// come to its end as its wire says is reset, never ended: a cut answer must not
// look like a short one.
func (s *Server) serveModel(w http.ResponseWriter, r *http.Request, path string, run *Run) {
	to, ok := routeOf(r, path)
	if !ok {
		refuse(w, http.StatusNotFound, refusal{Code: "not_found", Message: "There is no such route here."})
		return
	}
	body, err := readBody(w, r)
	switch {
	case errors.Is(err, errTooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, refusal{Code: "request_too_large", Message: "The request is larger than 8 MiB."})
		return
	case errors.Is(err, errEncoding):
		refuse(w, http.StatusUnsupportedMediaType, refusal{Code: "invalid_request", Message: "Send the body as it is, or with gzip or zstd."})
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, refusal{Code: "invalid_request", Message: "The body cannot be read."})
		return
	}
	c := &carrier{run: run, w: w, control: http.NewResponseController(w), route: to, began: r.Context()}
	if !to.answers {
		c.carry(r, body)
		c.abort()
		return
	}
	call, allowed := run.beginModel(offered(body))
	if !allowed {
		refuse(w, http.StatusBadRequest, refusal{Code: "capacity", Message: "The run has used up its model calls."})
		return
	}
	outcome, used := c.carry(r, body)
	// An answer that the program gave up unread says nothing of the turn.
	idle := outcome.Result == Cut && c.sent == 0 && c.gone()
	run.endModel(call, outcome, idle, used)
	if run.cfg.ModelCallEnded != nil && run.ctx.Err() == nil {
		run.cfg.ModelCallEnded(r.Context())
	}
	c.abort()
}

// carrier carries one request and its answer.
type carrier struct {
	run     *Run
	w       http.ResponseWriter
	control *http.ResponseController
	route   route
	// began is the request's context: it ends when the program goes away, or with
	// the run.
	began context.Context //nolint:containedctx // the life of the request
	sent  int64
	reset bool
}

// gone tells whether the program went away by itself.
func (c *carrier) gone() bool { return c.began.Err() != nil && c.run.ctx.Err() == nil }

// abort resets an answer that was not whole.
func (c *carrier) abort() {
	if c.reset {
		panic(http.ErrAbortHandler)
	}
}

func (c *carrier) carry(r *http.Request, body []byte) (Outcome, Usage) {
	req, err := c.request(r, body)
	if err != nil {
		refuse(c.w, http.StatusBadRequest, refusal{Code: "invalid_request", Message: "The request cannot be carried on."})
		return Outcome{Result: Failed, Status: http.StatusBadRequest, Code: fault.ModelFailed}, Usage{}
	}
	res, err := c.run.cfg.Model.HTTP.Do(req)
	if err != nil {
		return c.unanswered(err), Usage{}
	}
	defer func() { _ = res.Body.Close() }() // what it said is read, or does not matter
	if res.StatusCode != http.StatusOK {
		return c.failed(res), Usage{}
	}
	return c.answer(res)
}

// request is for modelproxy. The program's headers go no further: only what its
// wire needs is said again.
func (c *carrier) request(r *http.Request, body []byte) (*http.Request, error) {
	target := strings.TrimSuffix(c.run.cfg.Model.RootURL, "/") + c.route.path
	if c.route.query != "" {
		target += "?" + c.route.query
	}
	var content io.Reader
	if r.Method == http.MethodPost {
		content = bytes.NewReader(body)
	}
	// The trace is that of the run: what the program says of one stays here.
	ctx := trace.ContextWithSpanContext(r.Context(), trace.SpanContextFromContext(c.run.ctx)) //nolint:contextcheck // it is the run that has one
	req, err := http.NewRequestWithContext(ctx, r.Method, target, content)
	if err != nil {
		return nil, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, name := range []string{"Accept", "Anthropic-Version", "Anthropic-Beta"} {
		if v := r.Header.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	return req, nil
}

// unanswered is a request to which no answer came. The run's own refusals, such as
// a missing capability, are told with their code.
func (c *carrier) unanswered(err error) Outcome {
	if c.began.Err() != nil {
		c.reset = true
		return Outcome{Result: Cut}
	}
	code := fault.ModelUnavailable
	if known, ok := errors.AsType[*fault.Error](err); ok {
		code = known.Code()
	}
	refuse(c.w, statusFor(code.HTTPStatus(), code), refusal{Code: string(code), Message: code.Message()})
	return Outcome{Result: Failed, Code: code}
}

// failed passes an error on, with its status and its code.
func (c *carrier) failed(res *http.Response) Outcome {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		body = nil
	}
	h := c.w.Header()
	for _, name := range []string{"Content-Type", "Retry-After", "X-Should-Retry"} {
		if v := res.Header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	code := codeOf(res, body)
	status := statusFor(res.StatusCode, code)
	if status != res.StatusCode && c.route.wire == harness.WireGemini { // its clients read the status there too
		body = geminiFinal(code)
	}
	c.w.WriteHeader(status)
	_, _ = c.w.Write(body) // a program that has gone needs no answer
	return Outcome{Result: Failed, Status: res.StatusCode, Code: code, RetryAfter: retryAfter(res.Header)}
}

// statusFor is the status that a program gets. Programs go by it alone, and try again,
// some of them for minutes, where it may be for a moment only: so what is final has
// one that is.
func statusFor(status int, code fault.Code) int {
	passing := status >= http.StatusInternalServerError || status == http.StatusTooManyRequests ||
		status == http.StatusConflict || status == http.StatusRequestTimeout
	if passing && !code.Retryable() {
		return http.StatusBadRequest
	}
	return status
}

// geminiFinal is the body of an error that is final, on that wire.
func geminiFinal(code fault.Code) []byte {
	var e struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Status  string `json:"status"`
		} `json:"error"`
	}
	e.Error.Code, e.Error.Message, e.Error.Status = http.StatusBadRequest, code.Message(), "INVALID_ARGUMENT"
	body, err := json.Marshal(e)
	if err != nil { // strings and numbers always marshal
		return nil
	}
	return body
}

// faultHeader is where the proxy says its own code.
const faultHeader = "Cofferdam-Fault"

// codeOf is the proxy's own code, where it has said one, else by status.
func codeOf(res *http.Response, body []byte) fault.Code {
	status, code := res.StatusCode, fault.Code(res.Header.Get(faultHeader))
	if !code.Known() {
		code = codeIn(body)
	}
	switch {
	case code == fault.Cancelled: // the proxy was stopped; the run was not
		return fault.ModelUnavailable
	case code.Known():
		return code
	case status == http.StatusTooManyRequests:
		return fault.RateLimited
	case status >= http.StatusInternalServerError:
		return fault.ModelUnavailable
	default:
		return fault.ModelFailed
	}
}

// codeIn is the code of an error body; gemini has a number there.
func codeIn(body []byte) (code fault.Code) {
	var said struct {
		Error struct {
			Code json.RawMessage `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &said) == nil {
		_ = json.Unmarshal(said.Error.Code, &code) // what is no text is none
	}
	return code
}

func retryAfter(h http.Header) time.Duration {
	const longest = 3600
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n <= 0 {
		return 0
	}
	return time.Duration(min(n, longest)) * time.Second
}

// answer passes the body on, each piece when it has come.
func (c *carrier) answer(res *http.Response) (Outcome, Usage) {
	media := res.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(media)
	if err != nil {
		kind = ""
	}
	seen := newObserver(c.route.wire, kind == "text/event-stream")
	c.w.Header().Set("Content-Type", media)
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusOK)
	buf := make([]byte, 16<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			seen.write(buf[:n])
			if !c.pass(buf[:n]) {
				c.reset = true
				return c.end(seen, false), seen.usage()
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			whole := seen.close()
			c.reset = !whole
			return c.end(seen, whole), seen.usage()
		case err != nil:
			c.reset = true
			return c.end(seen, false), seen.usage()
		}
	}
}

// end says how an answer ended. A program may leave once it has seen the wire's
// terminal.
func (c *carrier) end(seen *observer, whole bool) Outcome {
	switch {
	case seen.failed():
		return Outcome{Result: Failed, Status: http.StatusOK, Code: fault.ModelFailed}
	case whole, seen.ended() && c.gone():
		return Outcome{Result: Finished, Status: http.StatusOK}
	default:
		return Outcome{Result: Cut, Status: http.StatusOK}
	}
}

// pass writes a piece, and waits for the program only so long.
func (c *carrier) pass(p []byte) bool {
	if c.began.Err() != nil {
		return false
	}
	_ = c.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // a writer without deadlines is one of a test
	n, err := c.w.Write(p)
	c.sent += int64(n)
	if err == nil {
		err = c.control.Flush()
	}
	return err == nil
}
