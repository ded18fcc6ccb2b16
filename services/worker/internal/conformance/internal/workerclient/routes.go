package workerclient

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
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/session"
)

// NewRoutes speaks the protocol's own HTTP routes.
func NewRoutes(c *rpctest.Client) Client { return overRoutes{c} }

type overRoutes struct{ *rpctest.Client }

// send gives an answer of 2xx, or the fault that the answer is.
func (h overRoutes) send(ctx context.Context, method, path string, body []byte, header ...string) (*http.Response, error) {
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

func (h overRoutes) unary(ctx context.Context, method, path string, req, res proto.Message) error {
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

func toJSON(m proto.Message) ([]byte, error) {
	return protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
}

func (h overRoutes) Ready(ctx context.Context) (Ready, error) {
	res := &workerv1.ReadyResponse{}
	err := h.unary(ctx, http.MethodGet, "ready", nil, res)
	return readyOf(res), err
}

func (h overRoutes) Bind(ctx context.Context, b Bind) error {
	return h.unary(ctx, http.MethodPost, "bind", b.proto(), &workerv1.BindResponse{})
}

func (h overRoutes) Start(ctx context.Context, s Start, each func(Received)) error {
	return h.stream(ctx, "runs:start", s.proto(), each)
}

func (h overRoutes) Resume(ctx context.Context, r Resume, each func(Received)) error {
	req, err := r.proto()
	if err != nil {
		return err
	}
	return h.stream(ctx, "runs:resume", req, each)
}

func (h overRoutes) stream(ctx context.Context, path string, req proto.Message, each func(Received)) (err error) {
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

func (h overRoutes) Cancel(ctx context.Context, e fence.Envelope, reason event.CancelReason) (session.Cancelled, error) {
	res := &workerv1.CancelRunResponse{}
	err := h.unary(ctx, http.MethodPost, "runs:cancel", &workerv1.CancelRunRequest{Envelope: e.Proto(), Reason: string(reason)}, res)
	return session.Cancelled{Active: res.GetActive(), Stopped: res.GetStopped()}, err
}

func (h overRoutes) Interrupt(ctx context.Context, e fence.Envelope) (*session.Interrupt, error) {
	header, err := rpc.EncodeEnvelope(e)
	if err != nil {
		return nil, err
	}
	res, err := h.send(ctx, http.MethodGet, "interrupt", nil, rpc.EnvelopeHeader, header)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusNoContent {
		return nil, res.Body.Close()
	}
	summary := &workerv1.InterruptSummary{}
	if err := decode(res, summary); err != nil {
		return nil, err
	}
	return interruptOf(summary), nil
}

func (h overRoutes) Shutdown(ctx context.Context, e fence.Envelope) error {
	return h.unary(ctx, http.MethodPost, "shutdown", &workerv1.ShutdownRequest{Envelope: e.Proto()}, &workerv1.ShutdownResponse{})
}
