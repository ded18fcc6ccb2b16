// Package rpc has the two RPC services of the state facade. It is the only
// package here that knows the wire.
package rpc

import (
	"log/slog"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/statefacade/internal/memory"
	"cofferdam.dev/services/statefacade/internal/threadstate"
)

// Config is what the handler needs.
type Config struct {
	TrustDomain spiffeid.TrustDomain
	Logger      *slog.Logger
	Verifier    *capability.Verifier
	Guard       *fence.Guard
	Telemetry   *telemetry.Telemetry
	ThreadState *threadstate.Service
	Memory      *memory.Service
}

// NewHandler serves both services behind one door.
func NewHandler(cfg Config) (http.Handler, error) {
	s := rpc.NewServer(rpc.Config{
		Logger: cfg.Logger, Verifier: cfg.Verifier, Guard: cfg.Guard, Telemetry: cfg.Telemetry,
	}, Policies(cfg.TrustDomain))
	threadstatev1connect.RegisterThreadStateServiceHandler(s.Connect(), &threadState{domain: cfg.ThreadState})
	memoryv1connect.RegisterMemoryServiceHandler(s.Connect(), &memoryService{domain: cfg.Memory})
	return s.Handler()
}

type threadState struct{ domain *threadstate.Service }

type memoryService struct{ domain *memory.Service }
