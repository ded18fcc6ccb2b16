package host

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"sync"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// exitsBuffer is how many exits wait for one listener; one that is slower misses
// some.
const exitsBuffer = 256

// namePattern is what names and uids of claims and instances are made of.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// Host serves a provider. Run must run for exits to be told.
type Host struct {
	provider sandbox.Provider
	info     info
	logger   *slog.Logger

	mu        sync.Mutex
	listeners map[chan sandbox.Exit]bool
	ended     bool
}

// New makes a Host. addresses are where a sandbox finds each service, and c
// describes the profiles.
func New(p sandbox.Provider, addresses map[string]string, c *harnesses.Catalogue, logger *slog.Logger) (*Host, error) {
	described, err := harnessesToWire(c)
	return &Host{
		provider: p, logger: logger, listeners: map[chan sandbox.Exit]bool{},
		info: info{Weaknesses: p.Weaknesses(), Addresses: addresses, Harnesses: described},
	}, err
}

// Run tells all listeners of each exit until ctx ends or the provider is closed.
// Then their streams end.
func (h *Host) Run(ctx context.Context) {
	defer h.end()
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-h.provider.Exits():
			if !open {
				return
			}
			h.tell(e)
		}
	}
}

func (h *Host) tell(e sandbox.Exit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		select {
		case l <- e:
		default: // it finds out by Alive
		}
	}
}

func (h *Host) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for l := range h.listeners {
		close(l)
	}
	clear(h.listeners)
}

// listen gives a channel of the exits to come. It is closed when there will be no
// more.
func (h *Host) listen() (exits <-chan sandbox.Exit, stop func()) {
	l := make(chan sandbox.Exit, exitsBuffer)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		close(l)
		return l, func() {}
	}
	h.listeners[l] = true
	return l, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.listeners, l)
	}
}

// Handler serves the routes. Who may call is the listener's to decide: it must be
// one with identity.ServerTLS and the control plane alone in its list.
func (h *Host) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST "+claimsPath, h.answering(h.claim))
	mux.Handle("POST "+roomPath, h.answering(h.room))
	mux.Handle("DELETE "+claimsPath+"/{name}", h.answering(h.release))
	mux.Handle("GET "+claimsPath+"/{name}/instances/{uid}", h.answering(h.alive))
	mux.Handle("GET "+instancesPath, h.answering(h.list))
	mux.Handle("GET "+infoPath, h.answering(func(*http.Request) (any, error) { return h.info, nil }))
	mux.HandleFunc("GET "+exitsPath, h.exits)
	return mux
}

func (h *Host) answering(do func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := do(r)
		var body []byte
		if err == nil {
			body, err = json.Marshal(answer)
		}
		if err != nil {
			f := fault.From(err, "host")
			h.logger.WarnContext(r.Context(), "request refused", "path", r.Pattern, "code", string(f.Code()), "incident_id", f.Incident(), "error", f.Error())
			fault.WriteHTTP(w, f)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n')) // a caller that has gone asks again
	})
}

func (h *Host) claim(r *http.Request) (any, error) {
	c, err := claimOf(r)
	if err != nil {
		return nil, err
	}
	in, err := h.provider.Claim(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return toWire(in), nil
}

func claimOf(r *http.Request) (sandbox.Claim, error) {
	const op = "host.claim"
	var c claim
	if err := strictjson.Decode(r.Body, &c, strictjson.Options{MaxBytes: maxRequest, MaxDepth: 1}); err != nil {
		return sandbox.Claim{}, fault.Wrap(err, fault.InvalidRequest, op)
	}
	if !namePattern.MatchString(c.Name) {
		return sandbox.Claim{}, fault.New(fault.InvalidRequest, op, fault.Detail("name: 1 to 128 characters of [A-Za-z0-9._-]"))
	}
	return sandbox.Claim{Name: c.Name, Profile: c.Profile, Harness: c.Harness}, nil
}

func (h *Host) room(r *http.Request) (any, error) {
	c, err := claimOf(r)
	if err != nil {
		return nil, err
	}
	return struct{}{}, h.provider.Room(r.Context(), c)
}

func (h *Host) release(r *http.Request) (any, error) {
	name := r.PathValue("name")
	if !namePattern.MatchString(name) {
		return struct{}{}, nil // there is no such claim, so it is released
	}
	return struct{}{}, h.provider.Release(r.Context(), name)
}

func (h *Host) alive(r *http.Request) (any, error) {
	yes, err := h.provider.Alive(r.Context(), r.PathValue("name"), r.PathValue("uid"))
	return alive{yes}, err
}

func (h *Host) list(r *http.Request) (any, error) {
	all, err := h.provider.List(r.Context())
	out := instances{Instances: make([]instance, len(all))}
	for i, in := range all {
		out.Instances[i] = toWire(in)
	}
	return out, err
}

// exits streams one line for each exit, after one that says that it listens.
func (h *Host) exits(w http.ResponseWriter, r *http.Request) {
	exits, stop := h.listen()
	defer stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, flush := json.NewEncoder(w), http.NewResponseController(w)
	say := func(e exit) bool { return lines.Encode(e) == nil && flush.Flush() == nil }
	if !say(exit{}) {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case e, open := <-exits:
			if !open || !say(exit{e.ClaimName, e.UID, e.Limit}) {
				return
			}
		}
	}
}
