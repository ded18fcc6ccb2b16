package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/event/eventproto"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	eventv1 "cofferdam.dev/pkg/gen/harness/event/v1"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

// wire is how a client speaks to the worker.
type wire interface {
	ready(ctx context.Context) (*workerv1.ReadyResponse, error)
	bind(ctx context.Context, req *workerv1.BindRequest) (*workerv1.BindResponse, error)
	// start gives the frames to each until there are no more.
	start(ctx context.Context, req *workerv1.StartRunRequest, each func(received)) error
	resume(ctx context.Context, req *workerv1.ResumeRunRequest, each func(received)) error
	cancel(ctx context.Context, req *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error)
	// interrupt is nil where none is pending.
	interrupt(ctx context.Context, e fence.Envelope) (*workerv1.InterruptSummary, error)
	shutdown(ctx context.Context, req *workerv1.ShutdownRequest) error
}

// received is one event as it came.
type received struct {
	envelope         fence.Envelope
	capability, boot string
	event            event.Event
}

// connectWire is the RPC.
type connectWire struct {
	workerv1connect.WorkerServiceClient
}

func newConnectWire(c *rpctest.Client) wire {
	return connectWire{workerv1connect.NewWorkerServiceClient(c.RPC)}
}

func (c connectWire) ready(ctx context.Context) (*workerv1.ReadyResponse, error) {
	return c.Ready(ctx, &workerv1.ReadyRequest{})
}

func (c connectWire) bind(ctx context.Context, req *workerv1.BindRequest) (*workerv1.BindResponse, error) {
	return c.Bind(ctx, req)
}

func (c connectWire) start(ctx context.Context, req *workerv1.StartRunRequest, each func(received)) error {
	stream, err := c.StartRun(ctx, req)
	if err != nil {
		return err
	}
	return frames(each, stream.Close, func() (*eventv1.EventFrame, error) {
		m, err := stream.Receive()
		return m.GetFrame(), err
	})
}

// frames reads a stream to its end.
func frames(each func(received), end func() error, next func() (*eventv1.EventFrame, error)) (err error) {
	defer func() { err = errors.Join(err, end()) }()
	for {
		f, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		env, err := fence.FromProto(f.GetEnvelope())
		if err != nil {
			return err
		}
		if n := len(f.GetEvents()); n == 0 || n > event.MaxFrameEvents {
			return fmt.Errorf("a frame of %d events", n)
		}
		for _, p := range f.GetEvents() {
			e, err := eventproto.FromProto(p)
			if err != nil {
				return err
			}
			each(received{env, f.GetCapabilityJti(), f.GetBootNonce(), e})
		}
	}
}

func (c connectWire) resume(ctx context.Context, req *workerv1.ResumeRunRequest, each func(received)) error {
	stream, err := c.ResumeRun(ctx, req)
	if err != nil {
		return err
	}
	return frames(each, stream.Close, func() (*eventv1.EventFrame, error) {
		m, err := stream.Receive()
		return m.GetFrame(), err
	})
}

func (c connectWire) cancel(ctx context.Context, req *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
	return c.CancelRun(ctx, req)
}

func (c connectWire) interrupt(ctx context.Context, e fence.Envelope) (*workerv1.InterruptSummary, error) {
	res, err := c.GetInterrupt(ctx, &workerv1.GetInterruptRequest{Envelope: e.Proto()})
	return res.GetInterrupt(), err
}

func (c connectWire) shutdown(ctx context.Context, req *workerv1.ShutdownRequest) error {
	_, err := c.Shutdown(ctx, req)
	return err
}

// httpWire are the protocol's own routes.
type httpWire struct{ *rpctest.Client }

func newHTTPWire(c *rpctest.Client) wire { return httpWire{c} }

// send gives an answer of 2xx, or the fault that the answer is.
func (h httpWire) send(ctx context.Context, method, path string, body []byte, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.BaseURL+"/internal/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
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

func (h httpWire) unary(ctx context.Context, method, path string, req, res proto.Message) error {
	var body []byte
	if req != nil {
		var err error
		if body, err = toJSON(req); err != nil {
			return err
		}
	}
	answer, err := h.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if ct := answer.Header.Get("Content-Type"); ct != "application/json" {
		return fmt.Errorf("content type %q", ct)
	}
	return protojson.Unmarshal(text, res)
}

func toJSON(m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
}

func (h httpWire) ready(ctx context.Context) (*workerv1.ReadyResponse, error) {
	res := &workerv1.ReadyResponse{}
	return res, h.unary(ctx, http.MethodGet, "ready", nil, res)
}

func (h httpWire) bind(ctx context.Context, req *workerv1.BindRequest) (*workerv1.BindResponse, error) {
	res := &workerv1.BindResponse{}
	return res, h.unary(ctx, http.MethodPost, "bind", req, res)
}

func (h httpWire) start(ctx context.Context, req *workerv1.StartRunRequest, each func(received)) error {
	return h.lines(ctx, "runs:start", req, each)
}

func (h httpWire) resume(ctx context.Context, req *workerv1.ResumeRunRequest, each func(received)) error {
	return h.lines(ctx, "runs:resume", req, each)
}

func (h httpWire) lines(ctx context.Context, path string, req proto.Message, each func(received)) (err error) {
	body, err := toJSON(req)
	if err != nil {
		return err
	}
	res, err := h.send(ctx, http.MethodPost, path, body)
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
		env, err := envelopeFromJSON(line.Envelope)
		if err != nil {
			return err
		}
		e, err := event.Decode(line.Event, event.Bounds{})
		if err != nil {
			return err
		}
		each(received{env, line.CapabilityJTI, line.BootNonce, e})
	}
}

func (h httpWire) cancel(ctx context.Context, req *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
	res := &workerv1.CancelRunResponse{}
	return res, h.unary(ctx, http.MethodPost, "runs:cancel", req, res)
}

func (h httpWire) interrupt(ctx context.Context, e fence.Envelope) (*workerv1.InterruptSummary, error) {
	header, err := rpc.EncodeEnvelope(e)
	if err != nil {
		return nil, err
	}
	res, err := h.send(ctx, http.MethodGet, "interrupt", nil, rpc.EnvelopeHeader, header)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(res.Body)
	switch err := errors.Join(err, res.Body.Close()); {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusNoContent && len(text) == 0:
		return nil, nil //nolint:nilnil // none is pending
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("answer %d %q", res.StatusCode, text)
	}
	out := &workerv1.InterruptSummary{}
	return out, protojson.Unmarshal(text, out)
}

func (h httpWire) shutdown(ctx context.Context, req *workerv1.ShutdownRequest) error {
	return h.unary(ctx, http.MethodPost, "shutdown", req, &workerv1.ShutdownResponse{})
}

var wires = map[string]func(*rpctest.Client) wire{"connect": newConnectWire, "http": newHTTPWire}

func envelopeFromJSON(raw json.RawMessage) (fence.Envelope, error) {
	var p fencev1.Envelope
	if err := protojson.Unmarshal(raw, &p); err != nil {
		return fence.Envelope{}, err
	}
	return fence.FromProto(&p)
}
