package rpc_test

import (
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
)

// A result that ToolBroker stores is a file of the conversation: the run can be
// given a handle for it, and the same request again gives the same object.
func TestResultIsAFileOfTheConversation(t *testing.T) {
	s := newSession(t)
	broker := filebrokerv1connect.NewFileBrokerServiceClient(
		s.stand.Dial(t, s.stand.Serve(t, s.served()), rpctest.ServiceID("filebroker"), rpctest.ServiceID("toolbroker")).RPC)
	e, content := s.stand.Envelope(), large(t, 600<<10)
	ctx := pkgrpc.WithToken(t.Context(), s.narrowed(e))
	first, err := putAnswer(ctx, broker, e, info(content), content)
	must(t, err)
	again, err := putAnswer(ctx, broker, e, info(content), content)
	must(t, err)
	if first.GetObjectId() != again.GetObjectId() {
		t.Errorf("%s, and %s for the same request", first.GetObjectId(), again.GetObjectId())
	}
	handle := s.downloadHandle(t, first.GetObjectId())
	use := s.stand.Envelope()
	if _, got, err := download(s.ctx(t, use, handle), s.sandbox, use, handle); err != nil || string(got) != content {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

// What ToolBroker gets in exchange lets it store a result, and nothing else.
func TestNarrowedCapabilityOpensNothingElse(t *testing.T) {
	s := newSession(t)
	url := s.stand.Serve(t, s.served())
	dial := func(name string) filebrokerv1connect.FileBrokerServiceClient {
		return filebrokerv1connect.NewFileBrokerServiceClient(s.stand.Dial(t, url, rpctest.ServiceID("filebroker"), rpctest.ServiceID(name)).RPC)
	}
	broker := dial("toolbroker")
	handle := s.downloadHandle(t, s.object(t, "content"))
	e := s.stand.Envelope()
	ctx := pkgrpc.WithToken(t.Context(), s.narrowed(e))
	_, err := put(ctx, broker, e, info("content"), "content")
	wantCode(t, err, fault.CallerNotAllowed)
	_, err = upload(ctx, broker, e, handle, info("content"), "content")
	wantCode(t, err, fault.CallerNotAllowed)
	_, _, err = download(ctx, broker, e, handle)
	wantCode(t, err, fault.CallerNotAllowed)
	_, err = broker.IssueHandle(ctx, issue(e, filebrokerv1.Direction_DIRECTION_UPLOAD, "", 10, e.Deadline))
	wantCode(t, err, fault.CallerNotAllowed)
	// In the hands of the sandbox it is another's.
	_, _, err = download(ctx, s.sandbox, e, handle)
	wantCode(t, err, fault.CapabilityInvalid)
	// And ToolBroker stores nothing with the sandbox's own.
	_, err = putAnswer(s.ctx(t, e, handle), broker, e, info("content"), "content")
	wantCode(t, err, fault.CapabilityInvalid)
}

// narrowed is what an exchange gives ToolBroker for the run of e.
func (s *session) narrowed(e fence.Envelope) string {
	return s.stand.Minter.Mint(capability.Claims{
		Audience: capability.FileBroker, Subject: rpctest.ServiceID("toolbroker"), Actor: rpctest.SandboxID(),
		BindingID: e.BindingID, Epoch: e.Epoch, Generation: e.Generation, RunID: e.RunID,
	})
}
