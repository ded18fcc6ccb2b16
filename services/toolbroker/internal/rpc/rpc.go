// Package rpc has the RPC service of ToolBroker. It is the only package here that
// knows the wire.
package rpc

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/toolbroker/internal/call"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
)

// Lister describes tools.
type Lister interface {
	List(ids []string) ([]catalogue.Descriptor, []catalogue.Unavailable)
}

// Caller calls tools.
type Caller interface {
	Call(ctx context.Context, req call.Request) (call.Answer, error)
}

// Config is what the handler needs.
type Config struct {
	TrustDomain spiffeid.TrustDomain
	Logger      *slog.Logger
	Verifier    *capability.Verifier
	Guard       *fence.Guard
	Telemetry   *telemetry.Telemetry
	Lister      Lister
	Caller      Caller
}

// NewHandler serves the service behind its door.
func NewHandler(cfg Config) (http.Handler, error) {
	s := rpc.NewServer(rpc.Config{
		Logger: cfg.Logger, Verifier: cfg.Verifier, Guard: cfg.Guard, Telemetry: cfg.Telemetry,
	}, Policies(cfg.TrustDomain))
	toolbrokerv1connect.RegisterToolBrokerServiceHandler(s.Connect(), &broker{lister: cfg.Lister, caller: cfg.Caller})
	return s.Handler()
}

type broker struct {
	lister Lister
	caller Caller
}
