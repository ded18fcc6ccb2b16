package demomodel

import (
	"slices"
	"strings"
	"testing"
)

// Whatever is decoded can be planned, always alike, and calls only what is
// offered, and nothing after results.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":">>call a.b {}"}]}],"tools":[{"function":{"name":"a_b"}}]}`,
		`{"messages":[{"role":"user","content":">>call a.b {}"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"a_b"}}]},{"role":"tool","tool_call_id":"1","content":"x\ny"}],"tools":[{"function":{"name":"a_b"}}]}`,
		`{"messages":[{"role":"tool"},{}]}`, `{"messages":[null]}`, `[]`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		req, err := decode(strings.NewReader(body))
		if err != nil {
			return
		}
		p, again := req.plan(), req.plan()
		if !slices.Equal(p.steps, again.steps) || !slices.Equal(p.calls, again.calls) {
			t.Fatalf("planned %+v, then %+v", p, again)
		}
		for _, c := range p.calls {
			if !slices.ContainsFunc(req.Tools, func(o offer) bool { return o.Function.Name == c.Function.Name }) {
				t.Fatalf("calls %q, which is not offered", c.Function.Name)
			}
		}
		if last := req.Messages[len(req.Messages)-1]; last.Role == roleTool && len(p.calls) > 0 {
			t.Fatalf("calls again after a result: %+v", p.calls)
		}
	})
}
