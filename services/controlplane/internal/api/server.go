// Package api is the public HTTP API of the control plane: JSON and SSE for
// callers with a bearer token. It is the only place that encodes public frames.
//
// A request is authenticated, bounded and decoded strictly; the subject is
// authorized for the agent before anything else happens. What belongs to
// another caller is not_found.
package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"cofferdam.dev/pkg/authz"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/controlplane/internal/agents"
	"cofferdam.dev/services/controlplane/internal/agui"
	"cofferdam.dev/services/controlplane/internal/authn"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/ratelimit"
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/ui"
)

// Bounds of the public API.
const (
	// MaxBodyBytes of a request: a message with its files inline, or with the whole
	// history of an AG-UI client.
	MaxBodyBytes = agui.MaxInputBytes
	// bodyTimeout is how long a request's body may take to come.
	bodyTimeout = 30 * time.Second
	// restTimeout is how long the rest of a body may take that nobody reads.
	restTimeout = time.Second
)

// Authorizer asks whether a subject has a relation to an object. Errors:
// access_denied, dependency_unavailable.
type Authorizer interface {
	Check(ctx context.Context, subject, relation, object string) error
}

// Authenticator verifies the bearer token of a request.
type Authenticator interface {
	Request(r *http.Request) (authn.Caller, error)
}

// Runs is what the API asks of the domain; *runs.Service does it. What belongs
// to another caller is not_found in every method that takes one.
type Runs interface {
	Conversations
	Start(ctx context.Context, caller runs.Caller, req runs.StartRequest) (runs.Started, error)
	Status(ctx context.Context, caller runs.Caller, runID string) (runs.Status, error)
	Events(ctx context.Context, caller runs.Caller, runID string, from uint64, limit int) (runs.Page, error)
	TakeStream(ctx context.Context, caller runs.Caller, runID string) (first bool, err error)
	Follow(ctx context.Context, caller runs.Caller, runID string, o runs.FollowOptions, yield func(sequence uint64, raw json.RawMessage) error) error
	Resume(ctx context.Context, caller runs.Caller, req runs.ResumeRequest) (runs.Started, error)
	Cancel(ctx context.Context, caller runs.Caller, runID string, reason event.CancelReason) (runs.Cancelled, error)
	Bindings(ctx context.Context, after string, limit int) ([]runs.Binding, error)
	Binding(ctx context.Context, id string) (runs.Binding, error)
}

// Agents is what the API asks of the agents; *agents.Registry does it.
type Agents interface {
	// List gives the newest version of each, by id.
	List(ctx context.Context) ([]agents.Agent, error)
	Newest(ctx context.Context, id string) (agents.Agent, error)
	At(ctx context.Context, id string, version uint32) (agents.Agent, error)
	// Put makes the version after expected.
	Put(ctx context.Context, d agents.Draft, expected uint32) (agents.Agent, error)
}

// Files of callers' conversations.
type Files interface {
	SaveFile(ctx context.Context, caller runs.Caller, req runs.SaveFile) (runs.StoredFile, error)
	File(ctx context.Context, caller runs.Caller, id string) (runs.StoredFile, error)
	ReadFile(ctx context.Context, f runs.StoredFile, offset, n int64, send func([]byte) error) error
}

// Conversations is what can be asked of one by its name, and of its files.
type Conversations interface {
	Files
	PendingInterrupt(ctx context.Context, caller runs.Caller, agentID, conversationID string) (*runs.PendingInterrupt, error)
	Interrupt(ctx context.Context, caller runs.Caller, agentID, conversationID, interruptID string) (runs.PendingInterrupt, error)
	ActiveRun(ctx context.Context, caller runs.Caller, agentID, conversationID string) (string, error)
	Clear(ctx context.Context, caller runs.Caller, agentID, conversationID string, epoch *uint32) (runs.Cleared, error)
}

// Config of an API.
type Config struct {
	Authn  Authenticator
	Authz  Authorizer
	Runs   Runs
	Agents Agents
	// Harnesses are what agents can be made for.
	Harnesses *harnesses.Catalogue
	// Sessions of the page for people; without them there is no page.
	Sessions *ui.Sessions
	// Limits of each subject; nil is none.
	Limits *ratelimit.Limiter
	Logger *slog.Logger

	// WriteTimeout is how long a client may leave a frame unread; 0 is 30 s.
	WriteTimeout time.Duration
	// MaxBehind and MaxLag are how many bytes, and how long, the request that a run
	// belongs to may be behind what is committed; 0 is 8 MiB and 30 s.
	MaxBehind uint64
	MaxLag    time.Duration
	// IdleComment is how often a stream that has nothing to say shows that it
	// lives; 0 is 15 s.
	IdleComment time.Duration
}

// API serves the public and the operators' routes.
type API struct{ cfg Config }

// New makes an API.
func New(cfg Config) *API {
	if cfg.WriteTimeout <= 0 {
		cfg.WriteTimeout = writeTimeout
	}
	if cfg.MaxBehind == 0 {
		cfg.MaxBehind = maxBehind
	}
	if cfg.MaxLag <= 0 {
		cfg.MaxLag = maxLag
	}
	if cfg.IdleComment <= 0 {
		cfg.IdleComment = idleComment
	}
	return &API{cfg}
}

// handler answers a request or says why not.
type handler func(w http.ResponseWriter, r *http.Request, caller runs.Caller) error

// callers are the routes for callers.
func (a *API) callers() map[string]handler {
	return map[string]handler{
		"POST /api/v1/runs":                                        a.starting(a.startRun),
		"GET /api/v1/runs/{run}":                                   a.getRun,
		"POST /api/v1/runs/{run}":                                  a.runAction,
		"GET /api/v1/runs/{run}/events":                            a.listEvents,
		"GET /api/v1/runs/{run}/stream":                            a.streamRun,
		"GET /api/v1/harnesses":                                    a.listHarnesses,
		"GET /api/v1/agents":                                       a.listAgents,
		"GET /api/v1/agents/{agent}":                               a.operator(a.getAgent),
		"PUT /api/v1/agents/{agent}":                               a.operator(a.putAgent),
		"POST /api/v1/agents/{agent}/agui":                         a.starting(a.runAGUI),
		"GET /api/v1/conversations/{conversation}/interrupt-state": a.interruptState,
		"POST /api/v1/conversations/{conversation}/clear":          a.clearConversation,
		"POST /api/v1/chat/stream/start":                           a.starting(a.chatStart),
		"POST /api/v1/chat/stream/resume":                          a.starting(a.chatResume),
		"POST /api/v1/chat/stream/cancel":                          a.chatCancel,
		"POST /api/v1/chat/invoke":                                 a.starting(a.chatInvoke),
		"POST " + filesRoute:                                       a.starting(a.saveFile),
		"GET " + filesRoute + "/{file}":                            a.getFile,
	}
}

// operators are the routes for operators, who need the relation operator.
func (a *API) operators() map[string]handler {
	return map[string]handler{
		"GET /api/v1/bindings":           a.listBindings,
		"GET /api/v1/bindings/{binding}": a.getBinding,
		"GET /api/v1/agents/{agent}":     a.getAgent,
		"PUT /api/v1/agents/{agent}":     a.putAgent,
	}
}

// openAPIRoute is served to callers and to operators, without a token.
const openAPIRoute = "GET /api/v1/openapi.json"

// Public serves the routes for callers.
func (a *API) Public() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range a.callers() {
		mux.Handle(pattern, a.authenticated(h))
	}
	return a.served(mux)
}

// Operators serves the routes for operators.
func (a *API) Operators() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range a.operators() {
		mux.Handle(pattern, a.authenticated(a.operator(h)))
	}
	if a.cfg.Sessions != nil {
		a.servePage(mux)
	}
	return a.served(mux)
}

// served adds what is at every address.
func (a *API) served(mux *http.ServeMux) http.Handler {
	mux.HandleFunc(openAPIRoute, describe)
	mux.Handle("/", a.authenticated(unknown))
	return a.guarded(mux)
}

func unknown(http.ResponseWriter, *http.Request, runs.Caller) error {
	return fault.New(fault.NotFound, "api", fault.Detail("path: no such route for this method"))
}

// guarded keeps one bad request from hurting others, and sets what every answer
// has.
func (a *API) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer a.recovered(r)
		// Also a request that is refused unread must not hold its connection: the
		// server reads what is left of a body before it answers.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // a writer without deadlines is one of a test
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit(r))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// recovered goes on to panic in the one way that only ends the connection: the
// answer may have begun, so that a reset is the only honest end.
func (a *API) recovered(r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler { //nolint:errorlint // net/http compares the panic value itself
		a.cfg.Logger.ErrorContext(r.Context(), "handler panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// authenticated lets nobody in whose token does not verify, and makes errors
// safe.
func (a *API) authenticated(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := a.cfg.Authn.Request(r)
		if err == nil {
			err = a.limited(h, w, r, runs.Caller{Subject: caller.Subject, Organization: caller.Organization})
		}
		if err != nil {
			a.refuse(w, r, err)
		}
	})
}

// limited keeps a subject within its limits. A stream is open until it ends.
func (a *API) limited(h handler, w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
	if a.cfg.Limits == nil {
		return h(w, r, caller)
	}
	leave, err := a.cfg.Limits.Enter(caller.Subject)
	if err != nil {
		return err
	}
	defer leave()
	return h(w, r, caller)
}

// starting keeps a subject within its limit of runs, before a body is read.
func (a *API) starting(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
		if a.cfg.Limits != nil {
			if err := a.cfg.Limits.Start(caller.Subject); err != nil {
				return err
			}
		}
		return h(w, r, caller)
	}
}

// operator asks for the relation before the handler runs.
func (a *API) operator(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, caller runs.Caller) error {
		if err := a.cfg.Authz.Check(r.Context(), caller.Subject, authz.Operator, authz.System); err != nil {
			return err
		}
		return h(w, r, caller)
	}
}

func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := fault.From(err, "api")
	level := slog.LevelDebug
	if e.Code().HTTPStatus() >= http.StatusInternalServerError && e.Code() != fault.NotImplemented {
		level = slog.LevelError
	}
	a.cfg.Logger.Log(r.Context(), level, "request refused", "code", string(e.Code()), "incident_id", e.Incident(), "error", e.Error())
	if e.Code() == fault.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="cofferdam"`)
	}
	if r.ContentLength != 0 {
		boundRest(w)
	}
	boundWrite(w)
	fault.WriteHTTP(w, e)
}
