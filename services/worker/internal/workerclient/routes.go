package workerclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/session"
)

// NewRoutes speaks the protocol's own HTTP routes.
func NewRoutes(c *rpctest.Client) Client { return overRoutes{Routes{c}} }

// Routes are the protocol's own HTTP routes, with whatever is sent there.
type Routes struct{ *rpctest.Client }

// Send gives an answer of 2xx, or the fault that the answer is. path is what
// follows /internal/v1/, and header has names, each with its value.
func (h Routes) Send(ctx context.Context, method, path string, body []byte, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.BaseURL+"/internal/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
	if h.Token != "" {
		req.Header.Set("Authorization", "Bearer "+h.Token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := h.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	text, err := io.ReadAll(res.Body)
	err = errors.Join(err, res.Body.Close())
	f, ok := fault.ReadHTTP(text)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("answer %d: %s", res.StatusCode, text)
	case f.Code().HTTPStatus() != res.StatusCode:
		return nil, fmt.Errorf("%s with the status %d", f.Code(), res.StatusCode)
	}
	return nil, f
}

// Unary sends a request, or nothing where it is nil, and reads the answer.
func (h Routes) Unary(ctx context.Context, method, path string, req, res proto.Message) error {
	var body []byte
	if req != nil {
		var err error
		if body, err = ToJSON(req); err != nil {
			return err
		}
	}
	answer, err := h.Send(ctx, method, path, body)
	if err != nil {
		return err
	}
	return decode(answer, res)
}

func decode(answer *http.Response, res proto.Message) error {
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if ct := answer.Header.Get("Content-Type"); ct != "application/json" {
		return fmt.Errorf("content type %q", ct)
	}
	return protojson.Unmarshal(text, res)
}

// ToJSON is a message as the routes take it.
func ToJSON(m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
}

// Lines sends a request and gives the events of the answer to each, until there
// are no more.
func (h Routes) Lines(ctx context.Context, path string, req proto.Message, each func(Received)) (err error) {
	body, err := ToJSON(req)
	if err != nil {
		return err
	}
	res, err := h.Send(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if ct := res.Header.Get("Content-Type"); ct != "application/x-ndjson" {
		return fmt.Errorf("content type %q", ct)
	}
	lines := json.NewDecoder(res.Body)
	lines.DisallowUnknownFields()
	for {
		var line struct {
			Envelope      json.RawMessage `json:"envelope"`
			CapabilityJTI string          `json:"capability_jti"`
			BootNonce     string          `json:"boot_nonce"`
			Event         json.RawMessage `json:"event"`
		}
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var p fencev1.Envelope
		if err := protojson.Unmarshal(line.Envelope, &p); err != nil {
			return err
		}
		env, err := fence.FromProto(&p)
		if err != nil {
			return err
		}
		e, err := event.Decode(line.Event, event.Bounds{})
		if err != nil {
			return err
		}
		each(Received{env, line.CapabilityJTI, line.BootNonce, e})
	}
}

// Pending asks what is pending; it is nil where nothing is.
func (h Routes) Pending(ctx context.Context, e fence.Envelope) (*workerv1.InterruptSummary, error) {
	header, err := rpc.EncodeEnvelope(e)
	if err != nil {
		return nil, err
	}
	res, err := h.Send(ctx, http.MethodGet, "interrupt", nil, rpc.EnvelopeHeader, header)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusNoContent {
		return nil, res.Body.Close() // what has this status has no body
	}
	summary := &workerv1.InterruptSummary{}
	return summary, decode(res, summary)
}

type overRoutes struct{ Routes }

func (h overRoutes) Ready(ctx context.Context) (Ready, error) {
	res := &workerv1.ReadyResponse{}
	err := h.Unary(ctx, http.MethodGet, "ready", nil, res)
	return readyOf(res), err
}

func (h overRoutes) Bind(ctx context.Context, b Bind) error {
	return h.Unary(ctx, http.MethodPost, "bind", b.proto(), &workerv1.BindResponse{})
}

func (h overRoutes) Start(ctx context.Context, s Start, each func(Received)) error {
	return h.Lines(ctx, "runs:start", s.proto(), each)
}

func (h overRoutes) Resume(ctx context.Context, r Resume, each func(Received)) error {
	req, err := r.proto()
	if err != nil {
		return err
	}
	return h.Lines(ctx, "runs:resume", req, each)
}

func (h overRoutes) Cancel(ctx context.Context, e fence.Envelope, reason event.CancelReason) (session.Cancelled, error) {
	res := &workerv1.CancelRunResponse{}
	err := h.Unary(ctx, http.MethodPost, "runs:cancel", &workerv1.CancelRunRequest{Envelope: e.Proto(), Reason: string(reason)}, res)
	return session.Cancelled{Active: res.GetActive(), Stopped: res.GetStopped()}, err
}

func (h overRoutes) Interrupt(ctx context.Context, e fence.Envelope) (*session.Interrupt, error) {
	summary, err := h.Pending(ctx, e)
	return interruptOf(summary), err
}

func (h overRoutes) Shutdown(ctx context.Context, e fence.Envelope) error {
	return h.Unary(ctx, http.MethodPost, "shutdown", &workerv1.ShutdownRequest{Envelope: e.Proto()}, &workerv1.ShutdownResponse{})
}
