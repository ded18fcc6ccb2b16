package rpc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"cofferdam.dev/pkg/fault"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc/rpctest"
)

func TestReady(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := open(t, rpctest.NewStand(t)).dial(t, on)
		got, err := c.ready(t.Context())
		must(t, err)
		want := &workerv1.ReadyResponse{
			Ready: true, ProtocolVersions: []uint32{1}, HarnessId: "scripted", AdapterVersion: "1.0.0", WorkerImageDigest: digest, BootNonce: nonce,
		}
		if !proto.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
}

// The same request again is answered the same, with whatever id, trace, deadline
// and tokens it comes; any other is a conflict.
func TestBind(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := open(t, rpctest.NewStand(t)).dial(t, on)
		want := &workerv1.BindResponse{BindingId: rpctest.BindingID, Epoch: rpctest.Epoch, LeaseGeneration: rpctest.Generation, BootNonce: nonce}
		for range 2 {
			req := bindRequest(c.stand.Envelope()) // another request id, key and deadline
			req.Envelope.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			req.Tokens[0].Token += "-minted-anew"
			got, err := c.bind(c.ctx(t), req)
			must(t, err)
			if !proto.Equal(got, want) {
				t.Errorf("got %v", got)
			}
		}
		for name, change := range map[string]func(*workerv1.BindRequest){
			"prompt":       func(r *workerv1.BindRequest) { r.Prompt = "other" },
			"tools":        func(r *workerv1.BindRequest) { r.Tools = nil },
			"endpoint":     func(r *workerv1.BindRequest) { r.Endpoints.ModelProxy.Address = "https://127.0.0.1:2" },
			"conversation": func(r *workerv1.BindRequest) { r.ConversationId = "conversation-2" },
			"limits":       func(r *workerv1.BindRequest) { r.Limits.MaxToolCalls++ },
		} {
			req := bindRequest(c.stand.Envelope())
			change(req)
			_, err := c.bind(c.ctx(t), req)
			if !fault.Is(err, fault.BindingConflict) {
				t.Errorf("another %s: %v", name, err)
			}
		}
		for name, change := range map[string]func(*workerv1.BindRequest){
			"binding":    func(r *workerv1.BindRequest) { r.Envelope.BindingId = "hs_another_binding_of_it" },
			"epoch":      func(r *workerv1.BindRequest) { r.Envelope.Epoch++ },
			"generation": func(r *workerv1.BindRequest) { r.Envelope.LeaseGeneration++ },
			"run":        func(r *workerv1.BindRequest) { r.Envelope.RunId = "run-2" },
		} {
			env := c.stand.Envelope()
			req := bindRequest(env)
			change(req)
			env.BindingID, env.Epoch, env.Generation, env.RunID = req.GetEnvelope().GetBindingId(), req.GetEnvelope().GetEpoch(), req.GetEnvelope().GetLeaseGeneration(), req.GetEnvelope().GetRunId()
			other := c.as(on, c.token(env))
			_, err := other.bind(other.ctx(t), req)
			if !fault.Is(err, fault.BindingConflict) {
				t.Errorf("another %s: %v", name, err)
			}
		}
		if n := c.adapter.initialized.Load(); n != 1 {
			t.Errorf("initialized %d times", n)
		}
	})
}

func TestBindIsRefused(t *testing.T) {
	each(t, func(t *testing.T, on func(*rpctest.Client) wire) {
		c := open(t, rpctest.NewStand(t)).dial(t, on)
		id := func(name string) string { return rpctest.ServiceID(name).String() }
		for name, x := range map[string]struct {
			change func(*workerv1.BindRequest)
			code   fault.Code
		}{
			"protocol version":       {func(r *workerv1.BindRequest) { r.Envelope.ProtocolVersion = 2 }, fault.ProtocolUnsupported},
			"no envelope":            {func(r *workerv1.BindRequest) { r.Envelope = nil }, fault.InvalidRequest},
			"no expectation":         {func(r *workerv1.BindRequest) { r.Expected = nil }, fault.InvalidRequest},
			"another harness":        {func(r *workerv1.BindRequest) { r.Expected.HarnessId = "native" }, fault.WorkerMismatch},
			"another version":        {func(r *workerv1.BindRequest) { r.Expected.AdapterVersion = "2.0.0" }, fault.WorkerMismatch},
			"another digest":         {func(r *workerv1.BindRequest) { r.Expected.WorkerImageDigest = strings.Replace(digest, "0", "1", 1) }, fault.WorkerMismatch},
			"another boot":           {func(r *workerv1.BindRequest) { r.Expected.BootNonce = "nonce-0" }, fault.WorkerMismatch},
			"no endpoints":           {func(r *workerv1.BindRequest) { r.Endpoints = nil }, fault.InvalidRequest},
			"no endpoint":            {func(r *workerv1.BindRequest) { r.Endpoints.Memory = nil }, fault.InvalidRequest},
			"no TLS":                 {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.Address = "http://127.0.0.1:1" }, fault.InvalidRequest},
			"an address with a path": {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.Address = "https://127.0.0.1:1/x" }, fault.InvalidRequest},
			"a user in an address":   {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.Address = "https://u:p@127.0.0.1:1" }, fault.InvalidRequest},
			"a relative socket":      {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.Address = "unix://run/x.sock" }, fault.InvalidRequest},
			"a trust domain as an identity": {func(r *workerv1.BindRequest) {
				r.Endpoints.ToolBroker.SpiffeId = "spiffe://" + c.stand.Domain.TrustDomain().Name()
			}, fault.InvalidRequest},
			"another trust domain":  {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.SpiffeId = "spiffe://elsewhere/svc/toolbroker" }, fault.InvalidRequest},
			"a sandbox as a broker": {func(r *workerv1.BindRequest) { r.Endpoints.ModelProxy.SpiffeId = rpctest.SandboxID().String() }, fault.InvalidRequest},
			"a longer path":         {func(r *workerv1.BindRequest) { r.Endpoints.ModelProxy.SpiffeId = id("modelproxy") + "/x" }, fault.InvalidRequest},
			"no SPIFFE ID":          {func(r *workerv1.BindRequest) { r.Endpoints.ModelProxy.SpiffeId = "modelproxy" }, fault.InvalidRequest},
			"two tools of one id": {func(r *workerv1.BindRequest) {
				r.Tools = append(r.Tools, &workerv1.Tool{ToolId: "fs.read", OfferedName: "other", InputSchema: []byte(`{}`)})
			}, fault.InvalidRequest},
			"two tools of one name": {func(r *workerv1.BindRequest) {
				r.Tools = append(r.Tools, &workerv1.Tool{ToolId: "fs.write", OfferedName: "fs_read", InputSchema: []byte(`{}`)})
			}, fault.InvalidRequest},
			"a schema that is none":   {func(r *workerv1.BindRequest) { r.Tools[0].InputSchema = []byte(`[]`) }, fault.InvalidRequest},
			"a schema that is broken": {func(r *workerv1.BindRequest) { r.Tools[0].InputSchema = []byte(`{"a":`) }, fault.InvalidRequest},
			"options that are none":   {func(r *workerv1.BindRequest) { r.Agent.HarnessOptions = []byte(`"x"`) }, fault.InvalidRequest},
			"a user that is none":     {func(r *workerv1.BindRequest) { r.UserContext = []byte(`{"a":1,"A":2}`) }, fault.InvalidRequest},
			"no model calls":          {func(r *workerv1.BindRequest) { r.Limits.MaxModelCalls = 0 }, fault.InvalidRequest},
			"too long a grace":        {func(r *workerv1.BindRequest) { r.Limits.ShutdownGrace = durationpb.New(61e9) }, fault.InvalidRequest},
			"too long a prompt":       {func(r *workerv1.BindRequest) { r.Prompt = strings.Repeat("x", 256<<10+1) }, fault.InvalidRequest},
			"too large":               {func(r *workerv1.BindRequest) { r.Prompt = strings.Repeat("x", maxBindBytes) }, fault.RequestTooLarge},
		} {
			req := bindRequest(c.stand.Envelope())
			x.change(req)
			_, err := c.bind(c.ctx(t), req)
			if !fault.Is(err, x.code) {
				t.Errorf("%s: %v, want %s", name, err, x.code)
			}
		}
		if c.Ready(t.Context()).Bound || c.adapter.initialized.Load() != 0 {
			t.Error("it was bound")
		}
		right := bindRequest(c.stand.Envelope())
		right.Endpoints.ToolBroker.Address = "unix:///run/toolbroker.sock"
		right.Tools[0].InputSchema = []byte(`{"properties":{"a":{},"A":{}}}`) // tools may have such
		right.Limits.ShutdownGrace = durationpb.New(2e9)
		_, err := c.bind(c.ctx(t), right)
		must(t, err)
	})
}
