package capability_test

import (
	"testing"

	"cofferdam.dev/pkg/capability"
)

func TestApproveToolsAreAmongTheTools(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		c  capability.Claims
		ok bool
	}{
		"none":            {capability.Claims{Audience: capability.ToolBroker, Tools: []string{"a.b"}}, true},
		"one of them":     {capability.Claims{Audience: capability.ToolBroker, Tools: []string{"a.b", "a.c"}, ApproveTools: []string{"a.c"}}, true},
		"another":         {capability.Claims{Audience: capability.ToolBroker, Tools: []string{"a.b"}, ApproveTools: []string{"a.c"}}, false},
		"one twice":       {capability.Claims{Audience: capability.ToolBroker, Tools: []string{"a.b"}, ApproveTools: []string{"a.b", "a.b"}}, false},
		"another service": {capability.Claims{Audience: capability.ThreadState, ApproveTools: []string{"a.b"}}, false},
	} {
		if err := tt.c.ValidateScope(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
