package capability_test

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/capability/capabilitytest"
	"cofferdam.dev/pkg/fault"
)

var broker = spiffeid.RequireFromString("spiffe://cofferdam.test/svc/toolbroker")

func narrowed() capability.Claims {
	c := capabilitytest.Claims(capability.FileBroker, broker)
	c.Actor, c.Handles = sandbox, nil
	return c
}

func TestANarrowedCapability(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	v := m.Verifier()
	c, err := v.Verify(t.Context(), m.Mint(narrowed()), capability.FileBroker, broker)
	if err != nil || !c.Narrowed() || c.Actor != sandbox || c.Subject != broker {
		t.Errorf("claims = %+v, error %v", c, err)
	}
	if _, err := v.Verify(t.Context(), m.Mint(narrowed()), capability.FileBroker, sandbox); !fault.Is(err, fault.CapabilityInvalid) {
		t.Errorf("in the sandbox's hands: %v", err)
	}
}

// A service holds nothing but what an exchange gives: one audience of a run, for
// one sandbox, and none of the claims of a sandbox's own.
func TestNarrowedCapabilitiesThatAreInvalid(t *testing.T) {
	m := capabilitytest.NewMinter(t)
	v := m.Verifier()
	for name, change := range map[string]func(*capability.Claims){
		"a service without a sandbox": func(c *capability.Claims) { c.Actor = spiffeid.ID{}; c.Handles = []string{"handle-1"} },
		"held by a sandbox":           func(c *capability.Claims) { c.Subject = sandbox },
		"for a service":               func(c *capability.Claims) { c.Actor = broker },
		"for another domain's sandbox": func(c *capability.Claims) {
			c.Actor = spiffeid.RequireFromString("spiffe://other.test/sandbox/i-1")
		},
		"held by a deeper path": func(c *capability.Claims) {
			c.Subject = spiffeid.RequireFromString("spiffe://cofferdam.test/svc/toolbroker/x")
		},
		"with handles":  func(c *capability.Claims) { c.Handles = []string{"handle-1"} },
		"without a run": func(c *capability.Claims) { c.RunID = "" },
		"for tools":     func(c *capability.Claims) { c.Audience, c.Tools = capability.ToolBroker, []string{"fs.a"} },
		"for memory":    func(c *capability.Claims) { c.Audience, c.MemoryScopes = capability.Memory, []string{"user"} },
		"for the worker": func(c *capability.Claims) {
			c.Audience = capability.HarnessWorker
		},
		"for thread state": func(c *capability.Claims) { c.Audience = capability.ThreadState },
		"for a model":      func(c *capability.Claims) { c.Audience, c.ModelAlias = capability.ModelProxy, "demo" },
	} {
		t.Run(name, func(t *testing.T) {
			c := narrowed()
			change(&c)
			if err := c.Validate(); err == nil {
				t.Error("valid")
			}
			if _, err := v.Verify(t.Context(), m.Mint(c), c.Audience, c.Subject); !fault.Is(err, fault.CapabilityInvalid) {
				t.Errorf("verified: %v", err)
			}
			if _, err := c.Payload(); err == nil {
				t.Error("it could be signed")
			}
		})
	}
	for name, act := range map[string]any{
		"a text": sandbox.String(), "nested": map[string]any{"sub": sandbox.String(), "act": map[string]any{"sub": sandbox.String()}},
		"empty": map[string]any{}, "no SPIFFE ID": map[string]any{"sub": "user-1"},
	} {
		token := m.Mint(narrowed(), capabilitytest.WithClaim("act", act))
		if _, err := v.Verify(t.Context(), token, capability.FileBroker, broker); !fault.Is(err, fault.CapabilityInvalid) {
			t.Errorf("act is %s: %v", name, err)
		}
	}
}
