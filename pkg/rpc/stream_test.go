package rpc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

// files is a client stream that counts what got through.
type files struct {
	filebrokerv1connect.UnimplementedFileBrokerServiceHandler
	got *atomic.Int64
}

func (f files) Upload(_ context.Context, st filebrokerv1connect.FileBrokerServiceUploadServerStream) (*filebrokerv1.UploadResponse, error) {
	for {
		if _, err := st.Receive(); errors.Is(err, io.EOF) {
			return &filebrokerv1.UploadResponse{ObjectId: "o"}, nil
		} else if err != nil {
			return nil, err
		}
		f.got.Add(1)
	}
}

func TestEveryMessageOfAStreamIsFenced(t *testing.T) {
	s := rpctest.NewStand(t)
	p := rpc.Policy{Callers: callers(), Audience: capability.FileBroker, Fence: rpc.RunFence}
	srv := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
		filebrokerv1connect.FileBrokerServicePutResultProcedure: p, filebrokerv1connect.FileBrokerServiceUploadProcedure: p, filebrokerv1connect.FileBrokerServiceDownloadProcedure: p,
		filebrokerv1connect.FileBrokerServicePutObjectProcedure: p, filebrokerv1connect.FileBrokerServiceIssueHandleProcedure: p,
	}, filebrokerv1.File_harness_filebroker_v1_filebroker_proto))
	got := new(atomic.Int64)
	filebrokerv1connect.RegisterFileBrokerServiceHandler(srv.Connect(), files{got: got})
	h, err := srv.Handler()
	if err != nil {
		t.Fatal(err)
	}
	id := rpctest.ServiceID("filebroker")
	c := s.Dial(t, s.Serve(t, rpctest.Service{Handler: h, ID: id, Allow: callers()}), id, rpctest.SandboxID())
	ctx := rpc.WithToken(t.Context(), token(s, capability.FileBroker))
	for name, change := range map[string]func(*fence.Envelope){
		"generation": func(e *fence.Envelope) { e.Generation++ },
		"run":        func(e *fence.Envelope) { e.RunID = "run_other" },
		"key":        func(e *fence.Envelope) { e.IdempotencyKey = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			got.Store(0)
			st, err := filebrokerv1connect.NewFileBrokerServiceClient(c.RPC).Upload(ctx)
			if err != nil {
				t.Fatal(err)
			}
			e := s.Envelope()
			if err := st.Send(&filebrokerv1.UploadRequest{Envelope: e.Proto(), Handle: "h"}); err != nil {
				t.Fatal(err)
			}
			change(&e)
			_ = st.Send(&filebrokerv1.UploadRequest{Envelope: e.Proto(), Handle: "h"}) // the answer says what came of it
			if _, err := st.CloseAndReceive(); !fault.Is(err, fault.CapabilityScope) {
				t.Errorf("err = %v, want capability_scope", err)
			}
			if n := got.Load(); n != 1 {
				t.Errorf("%d messages got through, want the first alone", n)
			}
		})
	}
}

// downloads sends what the test says and then ends as it says.
type downloads struct {
	filebrokerv1connect.UnimplementedFileBrokerServiceHandler
	end func(context.Context) error
}

func (d downloads) Download(ctx context.Context, _ *filebrokerv1.DownloadRequest, st filebrokerv1connect.FileBrokerServiceDownloadServerStream) error {
	if err := st.Send(&filebrokerv1.DownloadResponse{Chunk: []byte("x")}); err != nil {
		return err
	}
	return d.end(ctx)
}

// A stream that ended is told apart from one that broke.
func TestTheEndOfAStream(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(context.Context) error
		want func(error) bool
	}{
		"clean":   {func(context.Context) error { return nil }, func(err error) bool { return err == io.EOF }}, //nolint:errorlint // it is that very error
		"refused": {func(context.Context) error { return fault.New(fault.HandleExpired, "test") }, func(err error) bool { return fault.Is(err, fault.HandleExpired) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := rpctest.NewStand(t)
			p := rpc.Policy{Callers: callers(), Audience: capability.FileBroker, Fence: rpc.RunFence}
			srv := rpc.NewServer(s.RPC(), rpctest.Policies(map[string]rpc.Policy{
				filebrokerv1connect.FileBrokerServicePutResultProcedure: p, filebrokerv1connect.FileBrokerServiceUploadProcedure: p, filebrokerv1connect.FileBrokerServiceDownloadProcedure: p,
				filebrokerv1connect.FileBrokerServicePutObjectProcedure: p, filebrokerv1connect.FileBrokerServiceIssueHandleProcedure: p,
			}, filebrokerv1.File_harness_filebroker_v1_filebroker_proto))
			filebrokerv1connect.RegisterFileBrokerServiceHandler(srv.Connect(), downloads{end: tc.end})
			h, err := srv.Handler()
			if err != nil {
				t.Fatal(err)
			}
			id := rpctest.ServiceID("filebroker")
			c := s.Dial(t, s.Serve(t, rpctest.Service{Handler: h, ID: id, Allow: callers()}), id, rpctest.SandboxID())
			st, err := filebrokerv1connect.NewFileBrokerServiceClient(c.RPC).Download(rpc.WithToken(t.Context(), token(s, capability.FileBroker)),
				&filebrokerv1.DownloadRequest{Envelope: s.Envelope().Proto(), Handle: "h"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Receive(); err != nil {
				t.Fatal(err)
			}
			if _, err := st.Receive(); !tc.want(err) {
				t.Errorf("the stream ended with %v", err)
			}
		})
	}
}

// A peer that resets a stream has not been cancelled by anybody here, and a
// unary call whose connection broke did not end cleanly.
func TestABrokenConnectionIsNotAnAnswer(t *testing.T) {
	s := rpctest.NewStand(t)
	id := rpctest.ServiceID("filebroker")
	breaks := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	c := s.Dial(t, s.Serve(t, rpctest.Service{Handler: breaks, ID: id, Allow: callers()}), id, rpctest.SandboxID())
	_, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Put(t.Context(), put(s.Envelope()))
	if !fault.Is(err, fault.DependencyUnavailable) && !fault.Is(err, fault.Internal) {
		t.Errorf("unary: %v", err)
	}
	st, err := filebrokerv1connect.NewFileBrokerServiceClient(c.RPC).Download(t.Context(), &filebrokerv1.DownloadRequest{Envelope: s.Envelope().Proto(), Handle: "h"})
	if err == nil {
		_, err = st.Receive()
	}
	if !fault.Is(err, fault.DependencyUnavailable) && !fault.Is(err, fault.Internal) {
		t.Errorf("stream: %v", err)
	}
}
