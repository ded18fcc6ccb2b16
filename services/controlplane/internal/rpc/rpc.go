// Package rpc has the RPC service of the control plane: what other services ask of
// it. It is the only package here that knows that wire.
package rpc

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	delegationv1 "cofferdam.dev/pkg/gen/harness/delegation/v1"
	"cofferdam.dev/pkg/gen/harness/delegation/v1/delegationv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/controlplane/internal/delegation"
)

// maxRequest bounds a request: a message of 256 KiB, and what stands around it.
const maxRequest = 320 << 10

// Callers may open a connection: the ToolBroker alone. A sandbox never does.
func Callers(td spiffeid.TrustDomain) identity.AllowList {
	return identity.AllowList{identity.Exactly(identity.Service(td, "toolbroker"))}
}

// Policies of every procedure.
func Policies(td spiffeid.TrustDomain) map[string]rpc.Policy {
	return map[string]rpc.Policy{
		delegationv1connect.DelegationServiceDelegateProcedure: {Callers: Callers(td), Fence: rpc.RunFence, MaxBytes: maxRequest},
	}
}

// Config is what the handler needs.
type Config struct {
	TrustDomain spiffeid.TrustDomain
	Logger      *slog.Logger
	Guard       *fence.Guard
	Telemetry   *telemetry.Telemetry
	Delegation  *delegation.Service
}

// NewHandler serves the service behind its door.
func NewHandler(cfg Config) (http.Handler, error) {
	s := rpc.NewServer(rpc.Config{Logger: cfg.Logger, Guard: cfg.Guard, Telemetry: cfg.Telemetry}, Policies(cfg.TrustDomain))
	delegationv1connect.RegisterDelegationServiceHandler(s.Connect(), &handler{cfg.Delegation})
	return s.Handler()
}

type handler struct{ delegation *delegation.Service }

// Delegate implements the RPC of this name.
func (h *handler) Delegate(ctx context.Context, req *delegationv1.DelegateRequest, out delegationv1connect.DelegationServiceDelegateServerStream) error {
	grant, err := rpc.GrantFrom(ctx)
	if err != nil {
		return err
	}
	return h.delegation.Delegate(ctx, delegation.Request{Grant: grant, AgentID: req.GetAgentId(), Message: req.GetMessage()}, watcher{out})
}

type watcher struct {
	out delegationv1connect.DelegationServiceDelegateServerStream
}

// Begun implements delegation.Watcher.
func (w watcher) Begun(runID, agentName string) error {
	return w.out.Send(&delegationv1.DelegateResponse{Step: &delegationv1.DelegateResponse_Run{
		Run: &delegationv1.DelegatedRun{RunId: runID, AgentName: agentName},
	}})
}

// Event implements delegation.Watcher.
func (w watcher) Event(raw json.RawMessage) error {
	var e event.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return fault.Wrap(err, fault.Internal, "rpc.Event") // it was judged before it was committed
	}
	p, err := eventproto.ToProto(e)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "rpc.Event")
	}
	return w.out.Send(&delegationv1.DelegateResponse{Step: &delegationv1.DelegateResponse_Event{Event: p}})
}
