// Package rpc puts the door of Cofferdam in front of the model routes: a sandbox,
// with a capability for the model proxy and the envelope of its run, which is
// the committed one. The route of embeddings is the state facade's alone.
package rpc

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/identity"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/modelproxy/internal/proxy"
)

// Config of the handler.
type Config struct {
	TrustDomain spiffeid.TrustDomain
	Logger      *slog.Logger
	Verifier    *capability.Verifier
	Guard       *fence.Guard
	Telemetry   *telemetry.Telemetry
	// Proxy carries what was let in.
	Proxy http.Handler
	// CallsPerRun is how many calls one run may make, those on the side included.
	CallsPerRun int
}

// maxEmbeddings bounds a request for embeddings, in bytes.
const maxEmbeddings = 1 << 20

// Callers may open a connection: sandboxes and the state facade, and nobody else.
func Callers(td spiffeid.TrustDomain) identity.AllowList {
	return slices.Concat(sandboxes(td), stateFacade(td))
}

// sandboxes are those of the trust domain. Which of them, and for which model, is
// the capability's to say.
func sandboxes(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.AnySandbox(td)}
}

// stateFacade has embeddings made of what is remembered, as itself, and nothing
// else (ADR 0015).
func stateFacade(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.Exactly(identity.Service(td, "statefacade"))}
}

// NewHandler serves the routes of the proxy, each behind the same door.
func NewHandler(cfg Config) (http.Handler, error) {
	s := pkgrpc.NewServer(pkgrpc.Config{
		Logger: cfg.Logger, Verifier: cfg.Verifier, Guard: cfg.Guard, Telemetry: cfg.Telemetry,
	}, nil)
	carry := newRuns(cfg.Guard, fenceEvery, cfg.CallsPerRun).watched(authorized(cfg.Proxy))
	for _, pattern := range proxy.Patterns() {
		s.HandleHTTP(pattern, pkgrpc.Policy{
			Callers:  sandboxes(cfg.TrustDomain),
			Audience: capability.ModelProxy,
			Fence:    pkgrpc.RunFence,
			MaxBytes: proxy.MaxRequest,
		}, carry)
	}
	s.HandleHTTP("POST "+proxy.PathEmbeddings, pkgrpc.Policy{Callers: stateFacade(cfg.TrustDomain), MaxBytes: maxEmbeddings}, cfg.Proxy)
	return s.Handler()
}

// authorized tells next which alias the capability names. The call ends when
// its run has to: a sandbox may name a later deadline than it has.
func authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grant, err := pkgrpc.GrantFrom(r.Context())
		if err != nil {
			fault.WriteHTTP(w, err)
			return
		}
		claims, ok := pkgrpc.ClaimsFrom(r.Context())
		if !ok {
			fault.WriteHTTP(w, fault.New(fault.CapabilityMissing, "modelproxy.authorized"))
			return
		}
		ctx, cancel := context.WithDeadline(r.Context(), grant.Envelope().Deadline)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(proxy.WithAlias(ctx, claims.ModelAlias)))
	})
}
