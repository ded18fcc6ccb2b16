package rpc_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
	"cofferdam.dev/pkg/rpc"
)

// The table of the procedure Mint. The rows about tokens (none, expired, wrong
// audience, wrong algorithm, alg none, unknown key, other sandbox's token) do not
// apply as refusals: the control plane acts as itself and presents none. What
// they have to show here is that a token opens nothing and closes nothing; see
// TestATokenChangesNothing.
func TestMint(t *testing.T) {
	w := newWorld(t)
	other := identitytest.NewDomain(t, "other.test")
	td := w.domain.TrustDomain()
	for name, row := range map[string]struct {
		caller identity.Source // nil is the control plane
		change func(*capabilityv1.MintRequest)
		// want is empty where the handshake itself fails.
		want     fault.Code
		accepted bool
	}{
		"all right": {accepted: true},
		"all right, without a run": {change: func(r *capabilityv1.MintRequest) {
			r.Envelope.RunId, r.Owner, r.Scopes = "", "", r.Scopes[:1]
		}, accepted: true},

		"wrong identity: the sandbox itself":   {caller: w.domain.Source(t, w.domain.Sandbox(instance)), want: fault.CallerNotAllowed},
		"wrong identity: another service":      {caller: w.domain.Source(t, identity.Service(td, "toolbroker")), want: fault.CallerNotAllowed},
		"wrong identity: an unlisted service":  {caller: w.domain.Source(t, identity.Service(td, "other"))},
		"wrong identity: a deeper path":        {caller: w.domain.Source(t, idOf(t, "spiffe://cofferdam.test/svc/controlplane/x"))},
		"wrong identity: another trust domain": {caller: other.Source(t, other.Service("controlplane"))},
		"wrong identity: self-signed":          {caller: w.domain.SelfSigned(t, identity.Service(td, "controlplane"))},
		"wrong identity: expired":              {caller: w.domain.Expired(t, identity.Service(td, "controlplane"))},

		"lower generation":   {change: func(r *capabilityv1.MintRequest) { r.Envelope.LeaseGeneration-- }, want: fault.StaleLease},
		"higher generation":  {change: func(r *capabilityv1.MintRequest) { r.Envelope.LeaseGeneration++ }, want: fault.StaleLease},
		"unknown generation": {change: func(r *capabilityv1.MintRequest) { r.Envelope.LeaseGeneration = 1 << 30 }, want: fault.StaleLease},
		"generation 0":       {change: func(r *capabilityv1.MintRequest) { r.Envelope.LeaseGeneration = 0 }, want: fault.StaleLease},
		"lower generation, without a run": {change: func(r *capabilityv1.MintRequest) {
			r.Envelope.LeaseGeneration, r.Envelope.RunId, r.Owner, r.Scopes = 1, "", "", r.Scopes[:1]
		}, want: fault.StaleLease},
		"lower epoch":     {change: func(r *capabilityv1.MintRequest) { r.Envelope.Epoch = 0 }, want: fault.StaleLease},
		"higher epoch":    {change: func(r *capabilityv1.MintRequest) { r.Envelope.Epoch = 2 }, want: fault.StaleLease},
		"unknown binding": {change: func(r *capabilityv1.MintRequest) { r.Envelope.BindingId = "hs_unknown_binding_0" }, want: fault.StaleLease},
		"wrong run":       {change: func(r *capabilityv1.MintRequest) { r.Envelope.RunId = "run_2" }, want: fault.StaleLease},
		"other sandbox":   {change: func(r *capabilityv1.MintRequest) { r.Subject = "spiffe://cofferdam.test/sandbox/instance-2" }, want: fault.StaleLease},
		"other replica":   {change: func(r *capabilityv1.MintRequest) { r.Owner = "replica-2/boot-1" }, want: fault.StaleLease},
		"too late":        {change: func(r *capabilityv1.MintRequest) { r.Envelope.Deadline = timestamppb.New(time.Now().Add(-time.Second)) }, want: fault.DeadlineExceeded},

		"no envelope":            {change: func(r *capabilityv1.MintRequest) { r.Envelope = nil }, want: fault.InvalidRequest},
		"another protocol":       {change: func(r *capabilityv1.MintRequest) { r.Envelope.ProtocolVersion = 2 }, want: fault.ProtocolUnsupported},
		"no subject":             {change: func(r *capabilityv1.MintRequest) { r.Subject = "" }, want: fault.InvalidRequest},
		"a subject that is none": {change: func(r *capabilityv1.MintRequest) { r.Subject = "instance-1" }, want: fault.InvalidRequest},
		"no scopes":              {change: func(r *capabilityv1.MintRequest) { r.Scopes = nil }, want: fault.InvalidRequest},
		"unknown audience":       {change: func(r *capabilityv1.MintRequest) { r.Scopes[0].Audience = "everything" }, want: fault.InvalidRequest},
		"audience twice":         {change: func(r *capabilityv1.MintRequest) { r.Scopes[0].Audience = "thread-state" }, want: fault.InvalidRequest},
		"foreign field":          {change: func(r *capabilityv1.MintRequest) { r.Scopes[0].Tools = []string{"fs.a"} }, want: fault.InvalidRequest},
		"wildcard tool":          {change: func(r *capabilityv1.MintRequest) { r.Scopes[1].Tools = []string{"fs.*"} }, want: fault.InvalidRequest},
		"tools without a run":    {change: func(r *capabilityv1.MintRequest) { r.Envelope.RunId, r.Owner = "", "" }, want: fault.InvalidRequest},
		"too large":              {change: func(r *capabilityv1.MintRequest) { r.Owner = strings.Repeat("x", 1<<20) }, want: fault.RequestTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			before, minted := w.record(t), w.minted()
			caller := row.caller
			if caller == nil {
				caller = w.controlPlane(t)
			}
			req := w.request()
			if row.change != nil {
				row.change(req)
			}
			res, err := w.client(t, caller).Mint(t.Context(), req)
			minted = w.minted() - minted
			switch {
			case row.accepted && (err != nil || len(res.GetTokens()) != len(req.GetScopes()) || minted != len(req.GetScopes())):
				t.Errorf("error = %v, %d tokens, %d audit lines, want %d", err, len(res.GetTokens()), minted, len(req.GetScopes()))
			case !row.accepted && err == nil:
				t.Error("accepted")
			case !row.accepted && row.want != "" && !fault.Is(err, row.want):
				t.Errorf("error = %v, want %s", err, row.want)
			case !row.accepted && minted > 0:
				t.Errorf("%d capabilities were minted", minted)
			}
			if after := w.record(t); !reflect.DeepEqual(before, after) {
				t.Errorf("the record changed: %+v, was %+v", after, before)
			}
		})
	}
}

func TestNoTLSIdentity(t *testing.T) {
	w := newWorld(t)
	body, err := protojson.Marshal(w.request())
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]*http.Client{
		"no certificate": noCertificate(t, w),
		"no TLS":         {Transport: plainTransport(t)},
	} {
		for _, path := range []string{capabilityv1connect.CapabilityServiceMintProcedure, capability.JWKSPath} {
			url := w.url(path)
			if name == "no TLS" {
				url = "http://" + w.addr + path
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			res, err := client.Do(req)
			if err == nil {
				_ = res.Body.Close()
			}
			if err == nil && res.StatusCode < http.StatusBadRequest {
				t.Errorf("%s: %s answers %d", name, path, res.StatusCode)
			}
		}
	}
	// And where a request got past the listener without a verified peer.
	for _, path := range []string{capabilityv1connect.CapabilityServiceMintProcedure, capability.JWKSPath} {
		method := http.MethodPost
		if path == capability.JWKSPath {
			method = http.MethodGet
		}
		status, code := serve(t, w, method, path, body)
		if status != http.StatusUnauthorized || code != fault.Unauthenticated {
			t.Errorf("%s without TLS state: %d %s, want 401 unauthenticated", path, status, code)
		}
	}
	if w.minted() > 0 {
		t.Errorf("%d capabilities were minted", w.minted())
	}
}

func TestATokenChangesNothing(t *testing.T) {
	w := newWorld(t)
	m := capabilitytest.NewMinter(t)
	sandbox := w.domain.Sandbox(instance)
	right := capabilitytest.Claims(capability.HarnessWorker, sandbox)
	right.BindingID, right.Epoch, right.Generation, right.RunID = bindingID, 1, 2, runID
	controlPlane, worker := w.client(t, w.controlPlane(t)), w.client(t, w.domain.Source(t, sandbox))

	res, err := controlPlane.Mint(t.Context(), w.request())
	if err != nil {
		t.Fatal(err)
	}
	rows := append(m.Broken(right), capabilitytest.Broken{Name: "one of this service's own", Token: res.GetTokens()[0].GetToken()})
	minted := w.minted()
	for _, b := range rows {
		t.Run(b.Name, func(t *testing.T) {
			ctx := rpc.WithToken(t.Context(), b.Token)
			if _, err := worker.Mint(ctx, w.request()); !fault.Is(err, fault.CallerNotAllowed) {
				t.Errorf("a sandbox with the token: error = %v, want caller_not_allowed", err)
			}
			if w.minted() != minted {
				t.Errorf("%d capabilities were minted for a sandbox", w.minted()-minted)
			}
			if _, err := controlPlane.Mint(ctx, w.request()); err != nil {
				t.Errorf("the control plane with the token: %v", err)
			}
			minted = w.minted()
		})
	}
}

// Over plain HTTP the refusal is a real 409 with the code in the body.
func TestStaleLeaseIs409(t *testing.T) {
	w := newWorld(t)
	client := w.http(t, w.controlPlane(t))
	for generation, want := range map[uint32]int{1: http.StatusConflict, 2: http.StatusOK, 3: http.StatusConflict} {
		msg := w.request()
		msg.Envelope.LeaseGeneration = generation
		body, err := protojson.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		status, answer := post(t, client, w.url(capabilityv1connect.CapabilityServiceMintProcedure), body)
		if status != want {
			t.Errorf("generation %d: answer is %d, want %d", generation, status, want)
		}
		if want == http.StatusConflict && codeOf(t, answer) != "aborted" {
			t.Errorf("generation %d: answer %s, want aborted", generation, answer)
		}
	}
}

// Unknown fields are not among them: between services they are a later version's,
// and protobuf skips them.
func TestBadInput(t *testing.T) {
	w := newWorld(t)
	client := w.http(t, w.controlPlane(t))
	good := asJSON(t, w.request(), nil)
	for name, body := range map[string][]byte{
		"nothing":       nil,
		"not JSON":      []byte("subject=me"),
		"an array":      []byte("[]"),
		"wrong type":    asJSON(t, w.request(), map[string]any{"scopes": map[string]any{"a": 1}}),
		"cut off":       good[:len(good)/2],
		"not UTF-8":     bytes.Replace(good, []byte(owner), []byte("\xff\xfe"), 1),
		"trailing data": append(append([]byte{}, good...), "{}"...),
		"too large":     asJSON(t, w.request(), map[string]any{"owner": strings.Repeat("x", 1<<20)}),
	} {
		status, answer := post(t, client, w.url(capabilityv1connect.CapabilityServiceMintProcedure), body)
		if status < 400 || status >= 500 || w.minted() > 0 {
			t.Errorf("%s: %d %s, %d minted, want a 4xx and none", name, status, codeOf(t, answer), w.minted())
		}
	}
	if status, answer := post(t, client, w.url(capabilityv1connect.CapabilityServiceMintProcedure), good); status != http.StatusOK {
		t.Errorf("after all of that: %d %s", status, codeOf(t, answer))
	}
}

// A lease that is replaced after the door and before the last read is covered in
// package mint; this is the same from outside, with the receivers' checks.
func TestTokensEndWithTheirGeneration(t *testing.T) {
	w := newWorld(t)
	client := w.client(t, w.controlPlane(t))
	if _, err := client.Mint(t.Context(), w.request()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.writer.Replace(t.Context(), bindingID, 1, 2, func(uint32) string { return "claim-3" }, "default"); err != nil {
		t.Fatal(err)
	}
	minted := w.minted()
	if _, err := client.Mint(t.Context(), w.request()); !fault.Is(err, fault.StaleLease) {
		t.Errorf("generation 2: error = %v, want stale_lease", err)
	}
	next := w.request()
	next.Envelope.LeaseGeneration = 3
	if _, err := client.Mint(t.Context(), next); !fault.Is(err, fault.SandboxNotReady) {
		t.Errorf("generation 3 before it has a sandbox: error = %v, want sandbox_not_ready", err)
	}
	if w.minted() != minted {
		t.Errorf("%d capabilities were minted", w.minted()-minted)
	}
	if _, err := w.writer.UpdateLease(t.Context(), bindingID, 1, 3, func(l *binding.Lease) { l.InstanceUID = "instance-2" }); err != nil {
		t.Fatal(err)
	}
	next.Subject = w.domain.Sandbox("instance-2").String()
	if _, err := client.Mint(t.Context(), next); err != nil {
		t.Errorf("generation 3: %v", err)
	}
}

// asJSON is the message with some members replaced. encoding/json decides how it
// looks: what protojson writes differs from build to build.
func asJSON(t *testing.T, msg *capabilityv1.MintRequest, change map[string]any) []byte {
	t.Helper()
	data, err := protojson.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	maps.Copy(doc, change)
	if data, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	return data
}

func post(t *testing.T, client *http.Client, url string, body []byte) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}

// codeOf finds the code of the contract in an answer of either form.
func codeOf(t *testing.T, answer []byte) fault.Code {
	t.Helper()
	if e, ok := fault.ReadHTTP(answer); ok {
		return e.Code()
	}
	var doc struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(answer, &doc); err != nil {
		t.Fatalf("answer %s: %v", answer, err)
	}
	return fault.Code(doc.Code)
}
