// Package rpc has the RPC service of the file broker. It is the only package here
// that knows the wire.
package rpc

import (
	"log/slog"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/filebroker/internal/files"
)

// Config is what the handler needs.
type Config struct {
	TrustDomain spiffeid.TrustDomain
	Logger      *slog.Logger
	Verifier    *capability.Verifier
	Guard       *fence.Guard
	Telemetry   *telemetry.Telemetry
	Files       *files.Service
}

// NewHandler serves the service behind its door.
func NewHandler(cfg Config) (http.Handler, error) {
	s := rpc.NewServer(rpc.Config{
		Logger: cfg.Logger, Verifier: cfg.Verifier, Guard: cfg.Guard, Telemetry: cfg.Telemetry,
	}, Policies(cfg.TrustDomain))
	filebrokerv1connect.RegisterFileBrokerServiceHandler(s.Connect(), &fileBroker{domain: cfg.Files})
	return s.Handler()
}

type fileBroker struct{ domain *files.Service }
