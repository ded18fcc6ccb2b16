package toolbroker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/identity"
	pkgrpc "cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/toolbroker/internal/catalogue"
	"cofferdam.dev/services/toolbroker/internal/hostile"
)

// keeper answers for the capability service and the file broker, behind real
// doors: the exchange takes what the worker came with, and a result is kept only
// under what the exchange gave.
type keeper struct {
	capabilityv1connect.CapabilityServiceHandler
	filebrokerv1connect.FileBrokerServiceHandler

	stand  *rpctest.Stand
	refuse error // of the file broker

	mu    sync.Mutex
	shown []string // tokens that were exchanged
	kept  [][]byte
}

func (k *keeper) Exchange(ctx context.Context, req *capabilityv1.ExchangeRequest) (*capabilityv1.ExchangeResponse, error) {
	claims, err := k.stand.Minter.Verifier().Verify(ctx, req.GetSubjectToken(), capability.ToolBroker, rpctest.SandboxID())
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.shown = append(k.shown, req.GetSubjectToken())
	k.mu.Unlock()
	return &capabilityv1.ExchangeResponse{Token: &capabilityv1.Token{Token: k.stand.Minter.Mint(capability.Claims{
		Audience: capability.Audience(req.GetAudience()), Subject: rpctest.ServiceID("toolbroker"), Actor: rpctest.SandboxID(),
		BindingID: claims.BindingID, Epoch: claims.Epoch, Generation: claims.Generation, RunID: claims.RunID,
	})}}, nil
}

func (k *keeper) PutResult(_ context.Context, in filebrokerv1connect.FileBrokerServicePutResultServerStream) (*filebrokerv1.PutResultResponse, error) {
	var content []byte
	for {
		m, err := in.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		content = append(content, m.GetChunk()...)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return nil, k.refuse
	}
	k.kept = append(k.kept, content)
	return &filebrokerv1.PutResultResponse{ObjectId: "obj_kept"}, nil
}

// serve gives the addresses of both.
func (k *keeper) serve(t *testing.T) (capabilities, files string) {
	t.Helper()
	return k.serveWith(t, k)
}

// serveWith has another one answer for the capability service.
func (k *keeper) serveWith(t *testing.T, service capabilityv1connect.CapabilityServiceHandler) (capabilities, files string) {
	t.Helper()
	broker := identity.AllowList{identity.Exactly(rpctest.ServiceID("toolbroker"))}
	c := pkgrpc.NewServer(k.stand.RPC(), rpctest.Policies(map[string]pkgrpc.Policy{
		capabilityv1connect.CapabilityServiceExchangeProcedure: {Callers: broker, Fence: pkgrpc.RunFence},
		capabilityv1connect.CapabilityServiceAssertProcedure:   {Callers: broker, Fence: pkgrpc.RunFence},
	}, capabilityv1.File_harness_capability_v1_capability_proto))
	capabilityv1connect.RegisterCapabilityServiceHandler(c.Connect(), service)
	f := pkgrpc.NewServer(k.stand.RPC(), rpctest.Policies(map[string]pkgrpc.Policy{
		filebrokerv1connect.FileBrokerServicePutResultProcedure: {Callers: broker, Audience: capability.FileBroker, Fence: pkgrpc.RunFence},
	}, filebrokerv1.File_harness_filebroker_v1_filebroker_proto))
	filebrokerv1connect.RegisterFileBrokerServiceHandler(f.Connect(), k)
	serve := func(name string, s *pkgrpc.Server) string {
		h, err := s.Handler()
		must(t, err)
		return k.stand.Serve(t, rpctest.Service{Handler: h, ID: rpctest.ServiceID(name), Allow: broker})
	}
	return serve("capability", c), serve("filebroker", f)
}

func newKeeping(t *testing.T) (*session, *keeper) {
	t.Helper()
	k := &keeper{stand: rpctest.NewStand(t)}
	capabilities, files := k.serve(t)
	o := openWith(t, k.stand, func(*catalogue.Config) {}, func(c *Config) {
		c.CapabilityURL, c.CapabilityID = capabilities, rpctest.ServiceID("capability").String()
		c.FileBrokerURL, c.FileBrokerID = files, rpctest.ServiceID("filebroker").String()
	})
	return sessionOf(t, o), k
}

// A result that is too large for an event is kept as a whole: the worker gets the
// projection and the id, also when it asks again.
func TestAHugeResultIsKeptAsAWhole(t *testing.T) {
	s, k := newKeeping(t)
	e := s.stand.Envelope()
	for n := range 2 {
		res, err := s.callAs(t.Context(), e, "x.huge", `{}`)
		must(t, err)
		if res.GetResultRef() != "obj_kept" || !res.GetTruncated() || res.GetReplayed() != (n == 1) {
			t.Errorf("time %d: ref %q, truncated %v, replayed %v", n, res.GetResultRef(), res.GetTruncated(), res.GetReplayed())
		}
	}
	if len(k.kept) != 1 || len(k.shown) != 1 {
		t.Fatalf("%d results are kept after %d exchanges", len(k.kept), len(k.shown))
	}
	var whole struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(k.kept[0], &whole); err != nil || len(whole.Content) != 1 || len(whole.Content[0].Text) != hostile.HugeSize {
		t.Errorf("%d bytes are kept, %v", len(k.kept[0]), err)
	}
	if res, err := s.call(t, "x.echo", `{}`); err != nil || res.GetResultRef() != "" || len(k.kept) != 1 {
		t.Errorf("a small result: ref %q, %v", res.GetResultRef(), err)
	}
	for _, secret := range k.shown {
		if strings.Contains(s.log.String(), secret) {
			t.Error("the worker's capability is in the log")
		}
	}
}

// That a result could not be kept is no error of the call: the tool has answered.
func TestAResultThatCannotBeKeptIsCut(t *testing.T) {
	s, k := newKeeping(t)
	for _, code := range []fault.Code{fault.Capacity, fault.PersistenceFailed, fault.StaleLease} {
		k.refuse = fault.New(code, "test")
		before := len(s.count(t))
		res, err := s.call(t, "x.huge", `{}`)
		if err != nil || res.GetResultRef() != "" || !res.GetTruncated() {
			t.Errorf("%s: ref %q, truncated %v, %v", code, res.GetResultRef(), res.GetTruncated(), err)
		}
		if !strings.Contains(s.log.String(), `"code":"`+string(code)+`"`) || len(s.count(t)) > before+1 {
			t.Errorf("%s: it is not logged, or the tool ran again", code)
		}
	}
}
