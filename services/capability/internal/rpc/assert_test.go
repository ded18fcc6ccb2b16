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

// The table of the procedure Assert. What an assertion says, and what can be wrong
// with the capability that is shown for it, is tried in package mint.
func TestAssert(t *testing.T) {
	w := newWorld(t)
	other := identitytest.NewDomain(t, "other.test")
	td := w.domain.TrustDomain()
	shown := w.exchangeRequest(t).GetSubjectToken()
	right := func() *capabilityv1.AssertRequest {
		return &capabilityv1.AssertRequest{Envelope: w.request().GetEnvelope(), SubjectToken: shown, Audience: tokenEndpoint}
	}
	assertions := func() int { return strings.Count(w.log.String(), `"msg":"subject asserted"`) }
	for name, row := range map[string]struct {
		caller identity.Source // nil is ToolBroker
		change func(*capabilityv1.AssertRequest)
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

		"lower generation":  {change: func(r *capabilityv1.AssertRequest) { r.Envelope.LeaseGeneration-- }, want: fault.StaleLease},
		"higher generation": {change: func(r *capabilityv1.AssertRequest) { r.Envelope.LeaseGeneration++ }, want: fault.StaleLease},
		"lower epoch":       {change: func(r *capabilityv1.AssertRequest) { r.Envelope.Epoch = 0 }, want: fault.StaleLease},
		"unknown binding":   {change: func(r *capabilityv1.AssertRequest) { r.Envelope.BindingId = "hs_unknown_binding_0" }, want: fault.StaleLease},
		"wrong run":         {change: func(r *capabilityv1.AssertRequest) { r.Envelope.RunId = "run_2" }, want: fault.StaleLease},
		"no run":            {change: func(r *capabilityv1.AssertRequest) { r.Envelope.RunId = "" }, want: fault.StaleLease},
		"too late": {change: func(r *capabilityv1.AssertRequest) {
			r.Envelope.Deadline = timestamppb.New(time.Now().Add(-time.Second))
		}, want: fault.DeadlineExceeded},

		"no envelope":                    {change: func(r *capabilityv1.AssertRequest) { r.Envelope = nil }, want: fault.InvalidRequest},
		"no token":                       {change: func(r *capabilityv1.AssertRequest) { r.SubjectToken = "" }, want: fault.InvalidRequest},
		"a token that is none":           {change: func(r *capabilityv1.AssertRequest) { r.SubjectToken = "x.y.z" }, want: fault.CapabilityInvalid},
		"an endpoint that is not listed": {change: func(r *capabilityv1.AssertRequest) { r.Audience = "https://elsewhere.example/token" }, want: fault.AudienceMismatch},
		"too large":                      {change: func(r *capabilityv1.AssertRequest) { r.SubjectToken = strings.Repeat("x", 64<<10) }, want: fault.RequestTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			before, asserted := w.record(t), assertions()
			caller := row.caller
			if caller == nil {
				caller = w.domain.Source(t, identity.Service(td, "toolbroker"))
			}
			req := right()
			if row.change != nil {
				row.change(req)
			}
			res, err := w.client(t, caller).Assert(t.Context(), req)
			asserted = assertions() - asserted
			switch {
			case row.accepted && (err != nil || res.GetAssertion() == "" || asserted != 1):
				t.Errorf("error = %v, %s, %d audit lines", err, res, asserted)
			case !row.accepted && (err == nil || asserted > 0):
				t.Errorf("error = %v, %d audit lines, want neither", err, asserted)
			case !row.accepted && row.want != "" && !fault.Is(err, row.want):
				t.Errorf("error = %v, want %s", err, row.want)
			}
			if res.GetAssertion() != "" && strings.Contains(w.log.String(), res.GetAssertion()) {
				t.Error("the assertion is in the log")
			}
			if after := w.record(t); !reflect.DeepEqual(before, after) {
				t.Errorf("the record changed: %+v, was %+v", after, before)
			}
		})
	}
	if log := w.log.String(); strings.Contains(log, shown) || strings.Contains(log, "user-canary") {
		t.Error("the token that was shown, or the subject, is in the log")
	}
}
