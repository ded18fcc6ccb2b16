package identity_test

import (
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/identity/identitytest"
)

// Elsewhere a role check passed because the list of allowed services was empty. Here an empty list refuses everybody:
// in the decision per call, and in the handshake.
func TestEmptyAllowListRefusesEverybody(t *testing.T) {
	domain := identitytest.New(t)
	server := domain.Source(t, domain.Service("toolbroker"))
	callers := map[string]*identitytest.Source{
		"service":    domain.Source(t, domain.Service("controlplane")),
		"sandbox":    domain.Source(t, domain.Sandbox("i-1")),
		"the server": server,
	}
	for name, list := range map[string]identity.AllowList{
		"nil":               nil,
		"empty":             {},
		"zero matcher":      {identity.Matcher{}},
		"zero ID":           {identity.Exactly(identity.Service(domain.TrustDomain(), "not/a/name"))},
		"trust domain's ID": {identity.Exactly(domain.TrustDomain().ID())},
	} {
		for who, caller := range callers {
			t.Run(name+" list, "+who, func(t *testing.T) {
				if err := list.Check(caller.ID()); !fault.Is(err, fault.CallerNotAllowed) {
					t.Errorf("Check: %v, want caller_not_allowed", err)
				}
				_, serverErr, clientErr := handshake(t, identity.ServerTLS(server, list), identity.ClientTLS(caller, server.ID()))
				if !fault.Is(serverErr, fault.CallerNotAllowed) {
					t.Errorf("server: %v, want caller_not_allowed", serverErr)
				}
				if clientErr == nil {
					t.Error("the client got through")
				}
			})
		}
	}
}
