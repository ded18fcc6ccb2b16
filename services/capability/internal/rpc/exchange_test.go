package rpc_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"cofferdam.dev/pkg/fault"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
)

// exchangeRequest shows the sandbox's capability for ToolBroker.
func (w *world) exchangeRequest(t *testing.T) *capabilityv1.ExchangeRequest {
	t.Helper()
	req := w.request()
	req.Scopes = req.Scopes[1:2]
	res, err := w.client(t, w.controlPlane(t)).Mint(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return &capabilityv1.ExchangeRequest{Envelope: w.request().GetEnvelope(), SubjectToken: res.GetTokens()[0].GetToken(), Audience: "file-broker"}
}

// The table of the procedure Exchange. The capability stands in the body, since it
// is the worker's and not the caller's; what can be wrong with it is tried in
// package mint.
func TestExchange(t *testing.T) {
	w := newWorld(t)
	other := identitytest.NewDomain(t, "other.test")
	td := w.domain.TrustDomain()
	right := w.exchangeRequest(t)
	for name, row := range map[string]struct {
		caller identity.Source // nil is ToolBroker
		change func(*capabilityv1.ExchangeRequest)
		// want is empty where the handshake itself fails.
		want     fault.Code
		accepted bool
	}{
		"all right": {accepted: true},

		"wrong identity: the sandbox itself":   {caller: w.domain.Source(t, w.domain.Sandbox(instance)), want: fault.CallerNotAllowed},
		"wrong identity: the control plane":    {caller: w.controlPlane(t), want: fault.CallerNotAllowed},
		"wrong identity: the file broker":      {caller: w.domain.Source(t, identity.Service(td, "filebroker")), want: fault.CallerNotAllowed},
		"wrong identity: an unlisted service":  {caller: w.domain.Source(t, identity.Service(td, "other"))},
		"wrong identity: another trust domain": {caller: other.Source(t, other.Service("toolbroker"))},
		"wrong identity: self-signed":          {caller: w.domain.SelfSigned(t, identity.Service(td, "toolbroker"))},

		"lower generation":  {change: func(r *capabilityv1.ExchangeRequest) { r.Envelope.LeaseGeneration-- }, want: fault.StaleLease},
		"higher generation": {change: func(r *capabilityv1.ExchangeRequest) { r.Envelope.LeaseGeneration++ }, want: fault.StaleLease},
		"lower epoch":       {change: func(r *capabilityv1.ExchangeRequest) { r.Envelope.Epoch = 0 }, want: fault.StaleLease},
		"unknown binding":   {change: func(r *capabilityv1.ExchangeRequest) { r.Envelope.BindingId = "hs_unknown_binding_0" }, want: fault.StaleLease},
		"wrong run":         {change: func(r *capabilityv1.ExchangeRequest) { r.Envelope.RunId = "run_2" }, want: fault.StaleLease},
		"no run":            {change: func(r *capabilityv1.ExchangeRequest) { r.Envelope.RunId = "" }, want: fault.StaleLease},
		"too late": {change: func(r *capabilityv1.ExchangeRequest) {
			r.Envelope.Deadline = timestamppb.New(time.Now().Add(-time.Second))
		}, want: fault.DeadlineExceeded},

		"no envelope":             {change: func(r *capabilityv1.ExchangeRequest) { r.Envelope = nil }, want: fault.InvalidRequest},
		"no token":                {change: func(r *capabilityv1.ExchangeRequest) { r.SubjectToken = "" }, want: fault.InvalidRequest},
		"a token that is none":    {change: func(r *capabilityv1.ExchangeRequest) { r.SubjectToken = "x.y.z" }, want: fault.CapabilityInvalid},
		"an audience without use": {change: func(r *capabilityv1.ExchangeRequest) { r.Audience = "memory" }, want: fault.AudienceMismatch},
		"too large":               {change: func(r *capabilityv1.ExchangeRequest) { r.SubjectToken = strings.Repeat("x", 64<<10) }, want: fault.RequestTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			before, minted := w.record(t), w.minted()
			caller := row.caller
			if caller == nil {
				caller = w.domain.Source(t, identity.Service(td, "toolbroker"))
			}
			req := &capabilityv1.ExchangeRequest{Envelope: w.request().GetEnvelope(), SubjectToken: right.GetSubjectToken(), Audience: right.GetAudience()}
			if row.change != nil {
				row.change(req)
			}
			res, err := w.client(t, caller).Exchange(t.Context(), req)
			minted = w.minted() - minted
			switch {
			case row.accepted && (err != nil || res.GetToken().GetAudience() != "file-broker" || minted != 1):
				t.Errorf("error = %v, %s, %d audit lines", err, res, minted)
			case !row.accepted && (err == nil || minted > 0):
				t.Errorf("error = %v, %d audit lines, want neither", err, minted)
			case !row.accepted && row.want != "" && !fault.Is(err, row.want):
				t.Errorf("error = %v, want %s", err, row.want)
			}
			if after := w.record(t); !reflect.DeepEqual(before, after) {
				t.Errorf("the record changed: %+v, was %+v", after, before)
			}
		})
	}
	if log := w.log.String(); strings.Contains(log, right.GetSubjectToken()) {
		t.Error("the token that was shown is in the log")
	}
}
