package fault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectinprocess"
	"go.uber.org/goleak"

	"cofferdam.dev/pkg/fault"
	fencev1 "cofferdam.dev/pkg/gen/harness/fence/v1"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary must never leave the process.
const canary = "canary-7f3a-secret"

// failing is a real service of which every call fails with what the test wants.
type failing struct {
	workerv1connect.UnimplementedWorkerServiceHandler
	mu  sync.Mutex
	err error
}

func (f *failing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) answer() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *failing) CancelRun(context.Context, *workerv1.CancelRunRequest) (*workerv1.CancelRunResponse, error) {
	return nil, f.answer()
}

func (f *failing) StartRun(_ context.Context, req *workerv1.StartRunRequest, stream workerv1connect.WorkerServiceStartRunServerStream) error {
	if req.GetEnvelope() != nil { // after the first frame, that is inside the stream
		if err := stream.Send(&workerv1.StartRunResponse{}); err != nil {
			return err
		}
	}
	return f.answer()
}

// wire keeps every byte that a server sent.
type wire struct {
	to   http.Transport
	mu   sync.Mutex
	seen bytes.Buffer
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := w.to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprint(&w.seen, res.Header, res.Trailer)
	w.seen.Write(body)
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

func (w *wire) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.String()
}

// calls are the ways in which an error can arrive.
func calls(c workerv1connect.WorkerServiceClient) map[string]func(context.Context) error {
	stream := func(ctx context.Context, req *workerv1.StartRunRequest) error {
		s, err := c.StartRun(ctx, req)
		if err != nil {
			return err
		}
		for {
			if _, err := s.Receive(); err != nil {
				return errors.Join(err, s.Close())
			}
		}
	}
	return map[string]func(context.Context) error{
		"unary": func(ctx context.Context) error {
			_, err := c.CancelRun(ctx, &workerv1.CancelRunRequest{})
			return err
		},
		"stream": func(ctx context.Context) error { return stream(ctx, &workerv1.StartRunRequest{}) },
		"stream after a frame": func(ctx context.Context) error {
			return stream(ctx, &workerv1.StartRunRequest{Envelope: &fencev1.Envelope{}})
		},
	}
}

func TestRoundTripOverConnect(t *testing.T) {
	t.Parallel()
	svc := &failing{}
	server := connect.NewServer()
	workerv1connect.RegisterWorkerServiceHandler(server, svc)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	h := httptest.NewServer(mux)
	t.Cleanup(h.Close)
	seen := &wire{}
	t.Cleanup(seen.to.CloseIdleConnections)
	for name, tr := range map[string]connect.Transport{
		"in process": connectinprocess.New(server),
		"http":       connecthttp.NewTransport(&http.Client{Transport: seen}, h.URL, connecthttp.WithCompressors()),
		"json":       connecthttp.NewTransport(&http.Client{Transport: seen}, h.URL, connecthttp.WithCompressors(), connecthttp.WithProtoJSON()),
		"gRPC-Web":   connecthttp.NewTransport(&http.Client{Transport: seen}, h.URL, connecthttp.WithCompressors(), connecthttp.WithGRPCWeb()),
	} {
		for kind, call := range calls(workerv1connect.NewWorkerServiceClient(connect.NewClient(tr))) {
			for _, code := range fault.Codes() {
				want := fault.Wrap(errors.New(canary), code, canary+".op", fault.Detail("field.path: rule"), fault.RetryAfter(7*time.Second), fault.SideEffects("possible"))
				svc.fail(fault.ToConnect(fmt.Errorf("%s: %w", canary, want)))
				got := fault.FromConnect(call(t.Context()), "client.Op")
				if got == nil || got.Code() != code || got.Detail() != want.Detail() || got.Incident() != want.Incident() ||
					got.RetryAfter() != want.RetryAfter() || got.SideEffects() != want.SideEffects() {
					t.Errorf("%s, %s, %s: arrives as %v", name, kind, code, got)
				}
			}
			bare := fault.New(fault.NotFound, "op")
			svc.fail(fault.ToConnect(bare))
			if got := fault.FromConnect(call(t.Context()), "op"); got.Code() != fault.NotFound || got.Detail() != "" || got.RetryAfter() != 0 || got.SideEffects() != "" {
				t.Errorf("%s, %s: %+v", name, kind, got)
			}
		}
	}
	if s := seen.String(); strings.Contains(s, canary) || !strings.Contains(s, "field.path: rule") {
		t.Errorf("on the wire: canary %v, detail %v", strings.Contains(s, canary), strings.Contains(s, "field.path"))
	}
}

// TestPlainErrorsStayInside: what a handler returns without fault says nothing,
// and arrives as something that can be acted upon.
func TestPlainErrorsStayInside(t *testing.T) {
	t.Parallel()
	if e := fault.ToConnect(errors.New(canary)); e.Code() != connect.CodeInternal || strings.Contains(e.Message(), canary) {
		t.Errorf("%v", e)
	}
	if e := fault.ToConnect(nil); e.Code() != connect.CodeInternal {
		t.Errorf("nothing becomes %v", e)
	}
	if e := fault.ToConnect(context.DeadlineExceeded); e.Code() != connect.CodeDeadlineExceeded {
		t.Errorf("%v", e)
	}
	if fault.FromConnect(nil, "op") != nil {
		t.Error("no error is an error")
	}
	if e := fault.FromConnect(context.Canceled, "op"); e.Code() != fault.Cancelled {
		t.Errorf("%v", e)
	}
	for code, want := range map[connect.Code]fault.Code{
		connect.CodeCanceled: fault.Cancelled, connect.CodeUnknown: fault.DependencyUnavailable, connect.CodeInvalidArgument: fault.InvalidRequest,
		connect.CodeDeadlineExceeded: fault.DeadlineExceeded, connect.CodeNotFound: fault.NotFound, connect.CodeAlreadyExists: fault.RevisionConflict,
		connect.CodePermissionDenied: fault.AccessDenied, connect.CodeResourceExhausted: fault.Capacity, connect.CodeFailedPrecondition: fault.InvalidRequest,
		connect.CodeAborted: fault.RevisionConflict, connect.CodeOutOfRange: fault.InvalidRequest, connect.CodeUnimplemented: fault.NotImplemented,
		connect.CodeInternal: fault.Internal, connect.CodeUnavailable: fault.DependencyUnavailable, connect.CodeDataLoss: fault.Internal,
		connect.CodeUnauthenticated: fault.Unauthenticated, connect.Code(99): fault.Internal,
	} {
		if got := fault.FromConnect(connect.NewError(code, "foreign"), "op"); got.Code() != want || !strings.Contains(got.Error(), "foreign") {
			t.Errorf("%v arrives as %v, want %s", code, got, want)
		}
	}
}

func TestServerAway(t *testing.T) {
	t.Parallel()
	h := httptest.NewServer(http.NotFoundHandler())
	url := h.URL
	h.Close()
	c := workerv1connect.NewWorkerServiceClient(connect.NewClient(connecthttp.NewTransport(&http.Client{}, url)))
	_, err := c.CancelRun(t.Context(), &workerv1.CancelRunRequest{})
	if got := fault.FromConnect(err, "op"); got.Code() != fault.DependencyUnavailable {
		t.Errorf("%v", got)
	}
}
