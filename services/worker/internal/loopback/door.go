package loopback

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const pathMCP = "/mcp"

// ServeHTTP is the door of both endpoints.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, known := s.known(r)
	switch {
	case !s.local(r):
		refuse(w, http.StatusForbidden, refusal{Code: "access_denied", Message: "This endpoint answers programs of its own sandbox only."})
		return
	case !known:
		refuse(w, http.StatusUnauthorized, refusal{Code: "unauthenticated", Message: "The key is not the one that this program was started with."})
		return
	case headers(r.Header) > MaxHeaders:
		refuse(w, http.StatusRequestHeaderFieldsTooLarge, refusal{Code: "request_too_large", Message: "The request has too many headers."})
		return
	}
	serve, places := s.serveModel, s.models
	if path == pathMCP {
		serve, places = s.serveMCP, s.calls
	}
	run, ok := s.enter()
	if !ok {
		refuse(w, http.StatusForbidden, refusal{Code: "no_run", Message: "There is no run. Models and tools can be used during a run only."})
		return
	}
	defer run.leave()
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		refuse(w, http.StatusTooManyRequests, refusal{Code: "capacity", Message: "Too many requests are under way. Wait for some of them to end.", RetryAfter: time.Second})
		return
	}
	ctx, end := run.bound(w, r)
	defer end()
	serve(w, r.WithContext(ctx), path, run) //nolint:contextcheck // it ends with the run as well
}

// known takes the secret from the path or from a header, and gives the path
// without it.
func (s *Server) known(r *http.Request) (path string, known bool) {
	path = r.URL.EscapedPath()
	if first, rest, more := strings.Cut(strings.TrimPrefix(path, "/"), "/"); more && s.opens(first) {
		return "/" + rest, true
	}
	for _, presented := range []string{bearer(r.Header), r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key")} {
		if presented != "" && s.opens(presented) {
			return path, true
		}
	}
	return path, false
}

// local refuses what a browser was led to send here: another Host by DNS
// rebinding, or another Origin.
func (s *Server) local(r *http.Request) bool {
	_, port, _ := strings.Cut(s.host, ":")
	if r.Host != s.host && r.Host != "localhost:"+port {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "" || origin == "http://"+r.Host
}

func headers(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// bound ties a request to its run: when that ends, nothing waits for the program
// any more, be it to send or to read.
func (r *Run) bound(w http.ResponseWriter, req *http.Request) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancel(req.Context())
	control := http.NewResponseController(w)
	cut := make(chan struct{})
	stop := context.AfterFunc(r.ctx, func() {
		defer close(cut)
		cancel()
		now := time.Now()
		// A connection without deadlines is one of a test; its reads end with it.
		_ = control.SetReadDeadline(now)
		_ = control.SetWriteDeadline(now)
	})
	return ctx, func() {
		if !stop() {
			<-cut // it must not touch a connection that serves another request
		}
		cancel()
	}
}

// refusal is an error in a shape that clients of all four wires show.
type refusal struct {
	Code       string
	Message    string
	RetryAfter time.Duration
}

func refuse(w http.ResponseWriter, status int, e refusal) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	} else {
		h.Set("X-Should-Retry", "false")
	}
	w.WriteHeader(status)
	// Codes and messages are fixed sentences of this package without quotes.
	body := `{"type":"error","error":{"type":"` + e.Code + `","code":"` + e.Code + `","message":"` + e.Message + `"}}` + "\n"
	_, _ = w.Write([]byte(body)) // a program that has gone needs no answer
}
