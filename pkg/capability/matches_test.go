package capability_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
)

func TestACapabilityMatchesOneEnvelope(t *testing.T) {
	for _, aud := range capability.Audiences() {
		c := capabilitytest.Claims(aud, sandbox)
		c.Epoch, c.Generation = 5, 5 // so that lower and higher both exist
		right := envelopeOf(c)
		if err := c.Matches(right); err != nil {
			t.Errorf("%s: right envelope: %v", aud, err)
		}
		for name, change := range map[string]func(*fence.Envelope){
			"other binding":     func(e *fence.Envelope) { e.BindingID += "x" },
			"no binding":        func(e *fence.Envelope) { e.BindingID = "" },
			"lower epoch":       func(e *fence.Envelope) { e.Epoch-- },
			"higher epoch":      func(e *fence.Envelope) { e.Epoch++ },
			"lower generation":  func(e *fence.Envelope) { e.Generation-- },
			"higher generation": func(e *fence.Envelope) { e.Generation++ },
			"no generation":     func(e *fence.Envelope) { e.Generation = 0 },
			"other run":         func(e *fence.Envelope) { e.RunID += "x" },
			"no run":            func(e *fence.Envelope) { e.RunID = "" },
		} {
			e := right
			change(&e)
			if err := c.Matches(e); !fault.Is(err, fault.CapabilityScope) {
				t.Errorf("%s, %s: error = %v, want capability_scope", aud, name, err)
			}
		}
	}
}

func TestALifecycleCapabilityMatchesRunsOfItsLeaseOnlyForTheWorker(t *testing.T) {
	for _, aud := range capability.Audiences() {
		c := capabilitytest.Claims(aud, sandbox)
		c.RunID = ""
		for _, run := range []string{"", "run_1", "run_2"} {
			e := envelopeOf(c)
			e.RunID = run
			err := c.Matches(e)
			if aud == capability.HarnessWorker && err != nil {
				t.Errorf("%s, run %q: %v", aud, run, err)
			}
			if aud != capability.HarnessWorker && !fault.Is(err, fault.CapabilityScope) {
				t.Errorf("%s, run %q: error = %v, want capability_scope", aud, run, err)
			}
		}
		e := envelopeOf(c)
		e.Generation++
		if err := c.Matches(e); !fault.Is(err, fault.CapabilityScope) {
			t.Errorf("%s: a lifecycle capability outlived its lease: %v", aud, err)
		}
	}
}

func TestZeroClaimsMatchNothing(t *testing.T) {
	for _, aud := range append(capability.Audiences(), "") {
		if err := (capability.Claims{Audience: aud}).Matches(fence.Envelope{}); !fault.Is(err, fault.CapabilityScope) {
			t.Errorf("%q: error = %v, want capability_scope", aud, err)
		}
	}
}

func TestClaimsInALogShowOnlyIDAndAudience(t *testing.T) {
	c := capabilitytest.Claims(capability.FileBroker, sandbox)
	c.ID, c.Handles = "jti-1", []string{"canary-handle"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("checked", "capability", c)
	if out := log.String(); !strings.Contains(out, "jti-1") || strings.Contains(out, "canary") || strings.Contains(out, "instance-1") {
		t.Errorf("log line = %s", out)
	}
}

func TestPayloadIsRefusedForClaimsThatAreInvalid(t *testing.T) {
	if payload, err := (capability.Claims{}).Payload(); err == nil {
		t.Errorf("payload of zero claims = %s", payload)
	}
}
