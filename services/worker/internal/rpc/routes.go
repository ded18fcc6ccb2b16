package rpc

import (
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/fault"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/session"
)

// Handler serves both wires behind one door. controlplane may call, with
// capabilities whose subject is self.
func Handler(cfg rpc.Config, s *Service, controlplane, self spiffeid.ID) (http.Handler, error) {
	p := newPolicies(controlplane, self)
	srv := rpc.NewServer(cfg, p.procedures())
	workerv1connect.RegisterWorkerServiceHandler(srv.Connect(), s)
	r := routes{s, srv, p, cfg.Logger}
	for pattern, route := range map[string]struct {
		policy rpc.Policy
		serve  func(http.ResponseWriter, *http.Request) error
	}{
		"GET /internal/v1/ready":        {p.ready, r.ready},
		"GET /internal/v1/interrupt":    {p.lease, r.interrupt},
		"POST /internal/v1/bind":        {inBody(p.bind), r.bind},
		"POST /internal/v1/runs:start":  {inBody(p.run), r.start},
		"POST /internal/v1/runs:resume": {inBody(p.run), r.resume},
		"POST /internal/v1/runs:cancel": {inBody(p.lease), r.cancel},
		"POST /internal/v1/shutdown":    {inBody(p.lease), r.shutdown},
	} {
		srv.HandleHTTP(pattern, route.policy, r.failing(route.serve))
	}
	return srv.Handler()
}

// routes are the protocol's own HTTP routes: JSON in the field names of the
// protocol text, canonical JSON events out.
type routes struct {
	*Service
	server   *rpc.Server
	policies policies
	logger   *slog.Logger
}

// inBody is the policy of a route whose envelope stands in the body: the handler
// asks the door about it once it has read it.
func inBody(p rpc.Policy) rpc.Policy {
	p.Fence = rpc.NoFence
	return p
}

// failing answers with the error of a route that has not answered yet. What its
// caller is not told stands in the log.
func (r routes) failing(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err := serve(w, req)
		if err == nil {
			return
		}
		f := fault.From(err, req.Pattern)
		level := slog.LevelDebug
		if f.Code() == fault.Internal {
			level = slog.LevelError
		}
		r.logger.Log(req.Context(), level, "request refused", "route", req.Pattern,
			"code", string(f.Code()), "incident_id", f.Incident(), "error", f.Error())
		fault.WriteHTTP(w, f)
	})
}

func (r routes) ready(w http.ResponseWriter, req *http.Request) error {
	res, err := r.Ready(req.Context(), nil)
	return answer(w, res, err)
}

// interrupt answers 204 when none is pending.
func (r routes) interrupt(w http.ResponseWriter, req *http.Request) error {
	res, err := r.GetInterrupt(req.Context(), nil)
	if err == nil && res.GetInterrupt() == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return answer(w, res.GetInterrupt(), err)
}

func (r routes) bind(w http.ResponseWriter, req *http.Request) error {
	var in workerv1.BindRequest
	if err := r.read(req, r.policies.bind, &in); err != nil {
		return err
	}
	res, err := r.Bind(req.Context(), &in)
	return answer(w, res, err)
}

// start answers 409 before any byte of the stream when the lease is stale.
func (r routes) start(w http.ResponseWriter, req *http.Request) error {
	var in workerv1.StartRunRequest
	if err := r.read(req, r.policies.run, &in); err != nil {
		return err
	}
	run, err := r.Service.start(req.Context(), &in)
	if err != nil {
		return err
	}
	return r.lines(w, req, run)
}

// resume answers 409 like start.
func (r routes) resume(w http.ResponseWriter, req *http.Request) error {
	var in workerv1.ResumeRunRequest
	if err := r.read(req, r.policies.run, &in); err != nil {
		return err
	}
	run, err := r.Service.resume(req.Context(), &in)
	if err != nil {
		return err
	}
	return r.lines(w, req, run)
}

// lines streams a run.
func (r routes) lines(w http.ResponseWriter, req *http.Request, run *session.Run) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	lines := newLineWriter(w)
	if err := r.stream(req.Context(), run, lines.write); err != nil {
		panic(http.ErrAbortHandler) // a stream without its terminal is reset, never ended
	}
	return nil
}

func (r routes) cancel(w http.ResponseWriter, req *http.Request) error {
	var in workerv1.CancelRunRequest
	if err := r.read(req, r.policies.lease, &in); err != nil {
		return err
	}
	res, err := r.CancelRun(req.Context(), &in)
	return answer(w, res, err)
}

func (r routes) shutdown(w http.ResponseWriter, req *http.Request) error {
	var in workerv1.ShutdownRequest
	if err := r.read(req, r.policies.lease, &in); err != nil {
		return err
	}
	res, err := r.Shutdown(req.Context(), &in)
	return answer(w, res, err)
}

// read decodes a body strictly and asks the door about its envelope.
func (r routes) read(req *http.Request, p rpc.Policy, m proto.Message) error {
	raw, err := io.ReadAll(req.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return fault.Wrap(err, fault.RequestTooLarge, "rpc.read")
	case err != nil:
		return fault.Wrap(err, fault.InvalidRequest, "rpc.read", fault.Detail("body: did not arrive whole"))
	}
	if err := decode(raw, maxBindBytes, m); err != nil {
		return err
	}
	return r.server.Admit(req, p, m)
}

func answer(w http.ResponseWriter, m proto.Message, err error) error {
	if err != nil {
		return err
	}
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return fault.Wrap(err, fault.Internal, "rpc.answer")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(raw, '\n')) // a caller that has gone needs no answer
	return nil
}
