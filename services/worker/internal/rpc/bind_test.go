package rpc

import (
	"crypto/sha256"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/rpc/rpctest"
	"cofferdam.dev/services/worker/internal/manifest"
	"cofferdam.dev/services/worker/internal/session"
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
		for repeated := range 2 {
			req := bindRequest(c.stand.Envelope()) // another request id, key and deadline
			req.Envelope.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			req.Tokens[0].Token += "-minted-anew"
			req.Middleware = []*workerv1.Middleware{{Name: "tool_deny", Options: []byte(`{"tool_ids":["fs.write"]}`)}}
			req.ContractVersion = 1
			if repeated > 0 { // what was pending then, the run has answered
				req.PendingInterrupt = &workerv1.InterruptSummary{InterruptId: "int-1", InterruptType: "form_input", Revision: 1}
			}
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
			"middleware":   func(r *workerv1.BindRequest) { r.Middleware = nil },
			"policy":       func(r *workerv1.BindRequest) { r.Interrupts = &workerv1.InterruptPolicy{FormInput: true} },
			"manifest":     func(r *workerv1.BindRequest) { r.Files = []*workerv1.ManifestFile{manifestFile("a", "h")} },
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
			"protocol version":      {func(r *workerv1.BindRequest) { r.Envelope.ProtocolVersion = 2 }, fault.ProtocolUnsupported},
			"no envelope":           {func(r *workerv1.BindRequest) { r.Envelope = nil }, fault.InvalidRequest},
			"no expectation":        {func(r *workerv1.BindRequest) { r.Expected = nil }, fault.InvalidRequest},
			"another harness":       {func(r *workerv1.BindRequest) { r.Expected.HarnessId = "native" }, fault.WorkerMismatch},
			"another version":       {func(r *workerv1.BindRequest) { r.Expected.AdapterVersion = "2.0.0" }, fault.WorkerMismatch},
			"another digest":        {func(r *workerv1.BindRequest) { r.Expected.WorkerImageDigest = strings.Replace(digest, "0", "1", 1) }, fault.WorkerMismatch},
			"another boot":          {func(r *workerv1.BindRequest) { r.Expected.BootNonce = "nonce-0" }, fault.WorkerMismatch},
			"another contract":      {func(r *workerv1.BindRequest) { r.ContractVersion = 2 }, fault.WorkerMismatch},
			"an unknown step":       {func(r *workerv1.BindRequest) { r.Middleware = []*workerv1.Middleware{{Name: "magic"}} }, fault.HarnessOptionsInvalid},
			"a step without a name": {func(r *workerv1.BindRequest) { r.Middleware = []*workerv1.Middleware{{}} }, fault.InvalidRequest},
			"too many steps":        {func(r *workerv1.BindRequest) { r.Middleware = make([]*workerv1.Middleware, 17) }, fault.InvalidRequest},
			"a path that leads out": {func(r *workerv1.BindRequest) { r.Skills = []*workerv1.ManifestFile{manifestFile("../x", "h")} }, fault.InvalidRequest},
			"paths that collide": {func(r *workerv1.BindRequest) {
				r.Files = []*workerv1.ManifestFile{manifestFile("a/B", "h"), manifestFile("A/b", "h")}
			}, fault.InvalidRequest},
			"a file without a hash": {func(r *workerv1.BindRequest) {
				f := manifestFile("a", "h")
				f.Sha256 = nil
				r.Files = []*workerv1.ManifestFile{f}
			}, fault.InvalidRequest},
			"an odd pending": {func(r *workerv1.BindRequest) {
				r.PendingInterrupt = &workerv1.InterruptSummary{InterruptId: "i", InterruptType: "gossip"}
			}, fault.InvalidRequest},
			"an odd scope":            {func(r *workerv1.BindRequest) { r.MemoryScopes = []string{"everybody"} }, fault.InvalidRequest},
			"a schema that leads out": {func(r *workerv1.BindRequest) { r.Tools[0].InputSchema = []byte(`{"$ref":"https://127.0.0.1:1/x"}`) }, fault.InvalidRequest},
			"no endpoints":            {func(r *workerv1.BindRequest) { r.Endpoints = nil }, fault.InvalidRequest},
			"no endpoint":             {func(r *workerv1.BindRequest) { r.Endpoints.Memory = nil }, fault.InvalidRequest},
			"no TLS":                  {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.Address = "http://127.0.0.1:1" }, fault.InvalidRequest},
			"an address with a path":  {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.Address = "https://127.0.0.1:1/x" }, fault.InvalidRequest},
			"a user in an address":    {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.Address = "https://u:p@127.0.0.1:1" }, fault.InvalidRequest},
			"a relative socket":       {func(r *workerv1.BindRequest) { r.Endpoints.ToolBroker.Address = "unix://run/x.sock" }, fault.InvalidRequest},
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
		right.Tools[0].InputSchema = []byte(`{"type":"object","properties":{"a":{},"A":{}}}`) // tools may have such
		right.Limits.ShutdownGrace = durationpb.New(2e9)
		_, err := c.bind(c.ctx(t), right)
		must(t, err)
	})
}

// manifestFile is one file of a manifest, of one byte.
func manifestFile(path, handle string) *workerv1.ManifestFile {
	sum := sha256.Sum256([]byte("x"))
	return &workerv1.ManifestFile{Path: path, Handle: handle, Size: 1, Sha256: sum[:], MimeType: "text/plain"}
}

// A bind that is sent again has other handles for the same files.
func TestBindDigestOfManifests(t *testing.T) {
	request := func(handle, path string) *workerv1.BindRequest {
		r := bindRequest(rpctestEnvelope())
		r.Skills, r.Files = []*workerv1.ManifestFile{manifestFile(path, handle)}, []*workerv1.ManifestFile{manifestFile("in", handle)}
		return r
	}
	first, err := bindDigest(request("h-1", "a"))
	must(t, err)
	same := request("h-2", "a")
	again, err := bindDigest(same)
	must(t, err)
	other, err := bindDigest(request("h-1", "b"))
	must(t, err)
	if first != again || first == other {
		t.Error("a digest does not tell files from handles")
	}
	if same.GetSkills()[0].GetHandle() != "h-2" {
		t.Error("the request lost its handles")
	}
}

// What bind brings reaches the session as it is.
func TestBindOf(t *testing.T) {
	req := bindRequest(rpctestEnvelope())
	req.ContractVersion = 1
	req.Interrupts = &workerv1.InterruptPolicy{ToolApproval: true}
	req.Middleware = []*workerv1.Middleware{{Name: "redact", Options: []byte(`{"patterns":["bearer"]}`)}, {Name: "tool_deny", Options: []byte(`{"tool_ids":["a.b"]}`)}}
	req.Skills, req.Files = []*workerv1.ManifestFile{manifestFile("pdf/SKILL.md", "h-1")}, []*workerv1.ManifestFile{manifestFile("in.txt", "h-2")}
	req.PendingInterrupt = &workerv1.InterruptSummary{InterruptId: "int-1", InterruptType: "tool_approval", Revision: 4}
	req.MemoryScopes = []string{"user", "agent"}
	b, err := bindOf(req, session.Capability{})
	must(t, err)
	if b.ContractVersion != 1 || !b.Construction.Interrupts.ToolApproval || b.Construction.Interrupts.FormInput || len(b.Construction.MemoryScopes) != 2 {
		t.Errorf("got %+v", b)
	}
	if len(b.Middleware) != 2 || b.Middleware[0].Name != "redact" || string(b.Middleware[1].Options) != `{"tool_ids":["a.b"]}` {
		t.Errorf("middleware is %+v", b.Middleware)
	}
	want := manifest.File{Path: "pdf/SKILL.md", Handle: "h-1", Size: 1, SHA256: sha256.Sum256([]byte("x")), MIMEType: "text/plain"}
	if len(b.Manifests.Skills) != 1 || b.Manifests.Skills[0] != want || len(b.Manifests.Files) != 1 || b.Manifests.Files[0].Path != "in.txt" {
		t.Errorf("manifests are %+v", b.Manifests)
	}
	if b.Pending == nil || *b.Pending != (session.Interrupt{ID: "int-1", Type: event.InterruptToolApproval, Revision: 4}) {
		t.Errorf("pending is %+v", b.Pending)
	}
}
