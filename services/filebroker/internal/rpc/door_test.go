package rpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

func doors() map[string]rpctest.Door {
	own := rpctest.Door{
		Caller: rpctest.ServiceID("controlplane"), Others: []spiffeid.ID{rpctest.SandboxID()},
		Fence: pkgrpc.RunFence, Changes: true,
		Open: func(t *testing.T, s *rpctest.Stand) rpctest.Service {
			t.Helper()
			o := open(t, s, quotaOfTests)
			svc := o.served()
			svc.BeforeWrite = o.hooks.BeforeWrite // its write is not one of the record
			return svc
		},
	}
	putObject := own
	putObject.Procedure = filebrokerv1connect.FileBrokerServicePutObjectProcedure
	putObject.Streaming = true
	putObject.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := put(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), e, info("content"), "content")
		return err
	}
	issueHandle := own
	issueHandle.Procedure = filebrokerv1connect.FileBrokerServiceIssueHandleProcedure
	issueHandle.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := filebrokerv1connect.NewFileBrokerServiceClient(c.RPC).IssueHandle(ctx, issue(e, filebrokerv1.Direction_DIRECTION_UPLOAD, "", 10, time.Now().Add(time.Minute)))
		return err
	}

	putFile := own
	putFile.Procedure = filebrokerv1connect.FileBrokerServicePutFileProcedure
	putFile.Fence, putFile.Streaming = pkgrpc.LeaseFence, true
	putFile.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := putFileOf(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), e, head(7), "content", sent("content"))
		return err
	}
	var object, of string
	read := rpctest.Door{
		Caller: own.Caller, Others: []spiffeid.ID{rpctest.SandboxID(), rpctest.ServiceID("toolbroker")},
		NoFenceReason: "a caller reads files of runs that are over",
		Open: func(t *testing.T, s *rpctest.Stand) rpctest.Service {
			t.Helper()
			o := open(t, s, quotaOfTests)
			object, of = dial(t, o).object(t, "content"), s.BindingID
			return o.served()
		},
	}
	statObject := read
	statObject.Procedure = filebrokerv1connect.FileBrokerServiceStatObjectProcedure
	statObject.Call = func(ctx context.Context, c *rpctest.Client, _ fence.Envelope) error {
		_, err := filebrokerv1connect.NewFileBrokerServiceClient(c.RPC).StatObject(ctx, &filebrokerv1.StatObjectRequest{ObjectId: object})
		return err
	}
	readObject := read
	readObject.Procedure, readObject.Streaming = filebrokerv1connect.FileBrokerServiceReadObjectProcedure, true
	readObject.Call = func(ctx context.Context, c *rpctest.Client, _ fence.Envelope) error {
		content, err := readOf(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), &filebrokerv1.ReadObjectRequest{ObjectId: object, BindingId: of})
		if err == nil && string(content) != "content" {
			err = errors.New("other content came")
		}
		return err
	}

	putContent := own
	putContent.Procedure = filebrokerv1connect.FileBrokerServicePutContentProcedure
	putContent.Others = []spiffeid.ID{rpctest.SandboxID(), rpctest.ServiceID("toolbroker")}
	putContent.Fence, putContent.Streaming = pkgrpc.NoFence, true
	putContent.NoFenceReason = "it belongs to no binding, and is what its SHA-256 says"
	putContent.Call = func(ctx context.Context, c *rpctest.Client, _ fence.Envelope) error {
		return putContentOf(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), contentOf("content"), "content")
	}
	keepContent := putContent
	keepContent.Procedure = filebrokerv1connect.FileBrokerServiceKeepContentProcedure
	keepContent.Streaming = false
	keepContent.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
		t.Helper()
		o := open(t, s, quotaOfTests)
		dial(t, o).content(t, "content")
		return o.served()
	}
	keepContent.Call = func(ctx context.Context, c *rpctest.Client, _ fence.Envelope) error {
		return keepContentOf(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), contentOf("content"))
	}

	putResult := own
	putResult.Procedure = filebrokerv1connect.FileBrokerServicePutResultProcedure
	putResult.Caller = rpctest.ServiceID("toolbroker")
	putResult.Others = []spiffeid.ID{rpctest.SandboxID(), rpctest.ServiceID("controlplane")}
	putResult.Audience, putResult.Streaming = capability.FileBroker, true
	putResult.Scope = func(c *capability.Claims) { c.Actor = rpctest.SandboxID() }
	putResult.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := putAnswer(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), e, info("content"), "content")
		return err
	}

	var handle string
	sandbox := rpctest.Door{
		Others: []spiffeid.ID{rpctest.ServiceID("controlplane")}, Audience: capability.FileBroker, Fence: pkgrpc.RunFence, Streaming: true,
		Scope: func(c *capability.Claims) { c.Handles = []string{handle} },
	}
	uploadFile := sandbox
	uploadFile.Procedure = filebrokerv1connect.FileBrokerServiceUploadProcedure
	uploadFile.Changes = true
	uploadFile.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
		t.Helper()
		o := open(t, s, quotaOfTests)
		handle = dial(t, o).uploadHandle(t, 100)
		return o.served()
	}
	uploadFile.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := upload(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), e, handle, info("content"), "content")
		return err
	}
	uploadPart := uploadFile
	uploadPart.Procedure = filebrokerv1connect.FileBrokerServiceUploadPartProcedure
	uploadPart.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
		t.Helper()
		o := open(t, s, quotaOfTests)
		handle = dial(t, o).uploadHandle(t, 100)
		svc := o.served()
		svc.BeforeWrite = o.hooks.BeforeWrite // its write is not one of the record
		return svc
	}
	uploadPart.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := uploadPartOf(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), e, handle, partOf("content", 0, 7), "content")
		return err
	}
	completeUpload := uploadFile
	completeUpload.Procedure, completeUpload.Streaming = filebrokerv1connect.FileBrokerServiceCompleteUploadProcedure, false
	completeUpload.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
		t.Helper()
		o := open(t, s, quotaOfTests)
		x := dial(t, o)
		handle = x.uploadHandle(t, 100)
		x.part(t, s.Envelope(), handle, "content", 0, 7)
		return o.served()
	}
	completeUpload.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := filebrokerv1connect.NewFileBrokerServiceClient(c.RPC).CompleteUpload(ctx, &filebrokerv1.CompleteUploadRequest{Envelope: e.Proto(), Handle: handle})
		return err
	}
	uploadStatus := completeUpload
	uploadStatus.Procedure, uploadStatus.Changes = filebrokerv1connect.FileBrokerServiceUploadStatusProcedure, false
	uploadStatus.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, err := filebrokerv1connect.NewFileBrokerServiceClient(c.RPC).UploadStatus(ctx, &filebrokerv1.UploadStatusRequest{Envelope: e.Proto(), Handle: handle})
		return err
	}
	downloadFile := sandbox
	downloadFile.Procedure = filebrokerv1connect.FileBrokerServiceDownloadProcedure
	downloadFile.Open = func(t *testing.T, s *rpctest.Stand) rpctest.Service {
		t.Helper()
		o := open(t, s, quotaOfTests)
		x := dial(t, o)
		handle = x.downloadHandle(t, x.object(t, "content"))
		return o.served()
	}
	downloadFile.Call = func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
		_, content, err := download(ctx, filebrokerv1connect.NewFileBrokerServiceClient(c.RPC), e, handle)
		if err == nil && string(content) != "content" {
			err = errors.New("other content came")
		}
		return err
	}
	return map[string]rpctest.Door{
		"put": putObject, "file": putFile, "result": putResult, "stat": statObject, "read": readObject,
		"issue": issueHandle, "upload": uploadFile, "download": downloadFile,
		"content": putContent, "keep": keepContent,
		"part": uploadPart, "status": uploadStatus, "complete": completeUpload,
	}
}

func TestDoor(t *testing.T) {
	for _, d := range doors() {
		d.Run(t)
	}
}

// TestLeaseReplacedBetweenAdmissionAndWrite is the fence test of this service.
func TestLeaseReplacedBetweenAdmissionAndWrite(t *testing.T) {
	for _, name := range []string{"put", "file", "result", "issue", "upload", "part"} {
		doors()[name].Race(t)
	}
}
