package rpc

import (
	"context"
	"time"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
	"cofferdam.dev/services/worker/internal/facadeclient"
	"cofferdam.dev/services/worker/internal/session"
)

// Service has the handlers of the worker.
type Service struct {
	session *session.Session
	source  identity.Source
	tel     *telemetry.Telemetry
	// endGrace is how long after its deadline a run may still tell how it ended.
	endGrace time.Duration
}

// New makes the handlers on a session.
func New(s *session.Session, src identity.Source, tel *telemetry.Telemetry) *Service {
	return &Service{session: s, source: src, tel: tel, endGrace: defaultEndGrace}
}

var _ workerv1connect.WorkerServiceHandler = (*Service)(nil)

// Ready implements GET /internal/v1/ready.
func (s *Service) Ready(ctx context.Context, _ *workerv1.ReadyRequest) (*workerv1.ReadyResponse, error) {
	i := s.session.Ready(ctx)
	return &workerv1.ReadyResponse{
		Ready: i.Ready, ProtocolVersions: []uint32{fence.ProtocolVersion}, HarnessId: i.HarnessID, AdapterVersion: i.AdapterVersion,
		WorkerImageDigest: i.ImageDigest, BootNonce: i.BootNonce, Bound: i.Bound,
	}, nil
}

// Bind implements POST /internal/v1/bind.
func (s *Service) Bind(ctx context.Context, req *workerv1.BindRequest) (*workerv1.BindResponse, error) {
	_, capability, err := runOf(ctx)
	if err != nil {
		return nil, err
	}
	b, err := bindOf(req, capability)
	if err != nil {
		return nil, err
	}
	endpoints, err := endpointsOf(req, s.source.ID().TrustDomain())
	if err != nil {
		return nil, err
	}
	err = s.session.Bind(ctx, b, func() (session.Connector, error) {
		adapter := facadeclient.Adapter{ID: b.Expected.HarnessID, Version: b.Expected.AdapterVersion}
		return facadeclient.New(endpoints, adapter, s.source, s.tel)
	})
	if err != nil {
		return nil, err
	}
	return &workerv1.BindResponse{
		BindingId: b.Envelope.BindingID, Epoch: b.Envelope.Epoch, LeaseGeneration: b.Envelope.Generation, BootNonce: b.Expected.BootNonce,
	}, nil
}

// StartRun implements POST /internal/v1/runs:start on Connect.
func (s *Service) StartRun(ctx context.Context, req *workerv1.StartRunRequest, out workerv1connect.WorkerServiceStartRunServerStream) error {
	run, err := s.start(ctx, req)
	if err != nil {
		return err
	}
	return s.stream(ctx, run, func(f *frame) error {
		p, err := f.proto()
		if err != nil {
			return err
		}
		return out.Send(&workerv1.StartRunResponse{Frame: p})
	})
}

func (s *Service) start(ctx context.Context, req *workerv1.StartRunRequest) (*session.Run, error) {
	env, _, err := runOf(ctx)
	if err != nil {
		return nil, err
	}
	turn, err := turnOf(req, env)
	if err != nil {
		return nil, err
	}
	return s.session.Start(ctx, env, turn, tokensOf(req.GetTokens()))
}

// ResumeRun implements POST /internal/v1/runs:resume on Connect.
func (s *Service) ResumeRun(ctx context.Context, req *workerv1.ResumeRunRequest, out workerv1connect.WorkerServiceResumeRunServerStream) error {
	run, err := s.resume(ctx, req)
	if err != nil {
		return err
	}
	return s.stream(ctx, run, func(f *frame) error {
		p, err := f.proto()
		if err != nil {
			return err
		}
		return out.Send(&workerv1.ResumeRunResponse{Frame: p})
	})
}

func (s *Service) resume(ctx context.Context, req *workerv1.ResumeRunRequest) (*session.Run, error) {
	env, _, err := runOf(ctx)
	if err != nil {
		return nil, err
	}
	decision, err := decisionOf(req, env)
	if err != nil {
		return nil, err
	}
	return s.session.Resume(ctx, env, decision, tokensOf(req.GetTokens()))
}

// CancelRun implements POST /internal/v1/runs:cancel. Its answer waits a while for
// the harness, so that it can say that it has stopped.
func (s *Service) CancelRun(ctx context.Context, req *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
	env, ok := rpc.EnvelopeFrom(ctx)
	if !ok || env.RunID == "" {
		return nil, fault.New(fault.InvalidRequest, "rpc.CancelRun", fault.Detail("envelope.run_id: required"))
	}
	c := s.session.Cancel(ctx, env.RunID, event.CancelReason(req.GetReason()))
	return &workerv1.CancelRunResponse{Active: c.Active, Stopped: c.Stopped}, nil
}

// GetInterrupt implements GET /internal/v1/interrupt.
func (s *Service) GetInterrupt(context.Context, *workerv1.GetInterruptRequest) (*workerv1.GetInterruptResponse, error) {
	i, pending := s.session.Interrupt()
	if !pending {
		return &workerv1.GetInterruptResponse{}, nil
	}
	return &workerv1.GetInterruptResponse{Interrupt: &workerv1.InterruptSummary{
		InterruptId: i.ID, InterruptType: string(i.Type), Revision: i.Revision,
	}}, nil
}

// Shutdown implements POST /internal/v1/shutdown. It goes on when its caller has
// gone, until the envelope's deadline.
func (s *Service) Shutdown(ctx context.Context, _ *workerv1.ShutdownRequest) (*workerv1.ShutdownResponse, error) {
	env, ok := rpc.EnvelopeFrom(ctx)
	if !ok {
		return nil, fault.New(fault.InvalidRequest, "rpc.Shutdown", fault.Detail("envelope: required"))
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), env.Deadline)
	defer cancel()
	if err := s.session.Shutdown(ctx); err != nil {
		return nil, err
	}
	return &workerv1.ShutdownResponse{}, nil
}

// runOf gives the run that the request and its capability name. A lifecycle
// capability, which names none, binds nothing and starts nothing.
func runOf(ctx context.Context) (fence.Envelope, session.Capability, error) {
	env, ok := rpc.EnvelopeFrom(ctx)
	claims, okClaims := rpc.ClaimsFrom(ctx)
	switch {
	case !okClaims:
		return env, session.Capability{}, fault.New(fault.CapabilityMissing, "rpc.runOf")
	case !ok || env.RunID == "":
		return env, session.Capability{}, fault.New(fault.InvalidRequest, "rpc.runOf", fault.Detail("envelope.run_id: required"))
	case claims.RunID != env.RunID:
		return env, session.Capability{}, fault.New(fault.CapabilityScope, "rpc.runOf")
	}
	return env, session.Capability{ID: claims.ID, IssuedAt: claims.IssuedAt}, nil
}
