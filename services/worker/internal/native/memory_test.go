package native

import (
	"fmt"
	"strings"
	"testing"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/harness"
)

func remembering(c *harness.Construction) {
	c.MemoryScopes = []harness.MemoryScope{harness.MemoryUser, harness.MemoryAgent}
}

func TestMemoryTools(t *testing.T) {
	s := newStand(t, remembering)
	got, text := s.use(t, "run-1", "memory_put", `{"scope":"user","key":"colour","content":"red","revision":0,"kind":"semantic"}`)
	if started := of[event.ToolStarted](got)[0]; started.ToolName != "cofferdam.memory_put" || text != `{"key":"colour","revision":1}` {
		t.Errorf("%+v: %s", started, text)
	}
	if r := s.memory.records["user/colour"]; r.Kind != "semantic" || r.ContentType != "text/plain" || string(r.Content) != "red" {
		t.Errorf("record: %+v", r)
	}
	if _, text = s.use(t, "run-2", "memory_get", `{"scope":"user","key":"colour"}`); text != `{"untrusted":true,"key":"colour","kind":"semantic","content_type":"text/plain","content":"red","revision":1}` {
		t.Errorf("read: %s", text)
	}
	if _, text = s.use(t, "run-3", "memory_search", `{"scope":"user","query":"re"}`); text != `{"untrusted":true,"found":[{"key":"colour","kind":"semantic","revision":1,"excerpt":"red"}]}` {
		t.Errorf("found: %s", text)
	}
	if _, text = s.use(t, "run-4", "memory_search", `{"scope":"agent","query":"re"}`); text != `{"untrusted":true,"found":[]}` || s.memory.searched[0] != fmt.Sprint("re ", maxMemoryFound) {
		t.Errorf("found: %s, asked %v", text, s.memory.searched)
	}
	if _, text = s.use(t, "run-4b", "memory_search", `{"scope":"user","query":"re","rank":"vector"}`); !strings.HasSuffix(text, `"excerpt":"red"}],"ranked_by":"lexical"}`) {
		t.Errorf("found by another rank than was asked for: %s", text)
	}
	_, text = s.use(t, "run-5", "memory_put", `{"scope":"user","key":"both","content":"red, [redacted]","revision":0,"kind":"semantic","sources":[{"key":"colour","revision":1}]}`)
	if r := s.memory.records["user/both"]; len(r.Sources) != 1 || r.Sources[0] != (harness.MemorySource{Key: "colour", Revision: 1}) || text != `{"key":"both","revision":1,"redactions":1}` {
		t.Errorf("record: %+v, %s", r, text)
	}
	if _, text = s.use(t, "run-6", "memory_get", `{"scope":"user","key":"both"}`); !strings.Contains(text, `"sources":[{"key":"colour","revision":1}]`) {
		t.Errorf("read: %s", text)
	}
	if _, text = s.use(t, "run-7", "memory_delete", `{"scope":"user","key":"colour","revision":1}`); text != `{"key":"colour","deleted":true}` || len(s.memory.records) != 1 {
		t.Errorf("deleted: %s, %v", text, s.memory.records)
	}
	s.memory.records["agent/long"] = harness.MemoryRecord{Kind: "semantic", Content: []byte(strings.Repeat("ä\x00", maxMemoryShown)), Revision: 1}
	got, text = s.use(t, "run-8", "memory_get", `{"scope":"agent","key":"long"}`)
	if f := of[event.ToolFinished](got)[0]; len(f.Result) > event.MaxResultBytes || !strings.Contains(text, `"truncated":true`) {
		t.Errorf("a result of %d bytes", len(f.Result))
	}
}

func TestMemoryErrors(t *testing.T) {
	for name, c := range map[string]struct {
		tool, args string
		code       fault.Code
	}{
		"no such key":           {"memory_get", `{"scope":"user","key":"x"}`, fault.NotFound},
		"another revision":      {"memory_put", `{"scope":"user","key":"x","content":"y","revision":7,"kind":"semantic"}`, fault.MemoryRevisionConflict},
		"a scope not allowed":   {"memory_get", `{"scope":"organization","key":"x"}`, fault.ToolArgumentsInvalid},
		"no key":                {"memory_get", `{"scope":"user","key":""}`, fault.ToolArgumentsInvalid},
		"an unknown member":     {"memory_get", `{"scope":"user","key":"x","subject":"somebody"}`, fault.ToolArgumentsInvalid},
		"an unknown kind":       {"memory_put", `{"scope":"user","key":"x","content":"y","revision":0,"kind":"z"}`, fault.ToolArgumentsInvalid},
		"no kind":               {"memory_put", `{"scope":"user","key":"x","content":"y","revision":0}`, fault.ToolArgumentsInvalid},
		"too much":              {"memory_put", `{"scope":"user","key":"x","content":"` + strings.Repeat("x", maxMemoryWrite+1) + `","revision":0,"kind":"semantic"}`, fault.ToolArgumentsInvalid},
		"no revision":           {"memory_put", `{"scope":"user","key":"x","content":"y","kind":"semantic"}`, fault.ToolArgumentsInvalid},
		"no source":             {"memory_put", `{"scope":"user","key":"x","content":"y","kind":"semantic","revision":0,"sources":[]}`, fault.ToolArgumentsInvalid},
		"a query for nothing":   {"memory_search", `{"scope":"user","query":""}`, fault.ToolArgumentsInvalid},
		"an unknown rank":       {"memory_search", `{"scope":"user","query":"x","rank":"best"}`, fault.ToolArgumentsInvalid},
		"a long query":          {"memory_search", `{"scope":"user","query":"` + strings.Repeat("x", maxMemoryQuery+1) + `"}`, fault.ToolArgumentsInvalid},
		"a search elsewhere":    {"memory_search", `{"scope":"organization","query":"x"}`, fault.ToolArgumentsInvalid},
		"a deletion of nothing": {"memory_delete", `{"scope":"user","key":"x","revision":0}`, fault.ToolArgumentsInvalid},
		"a deletion elsewhere":  {"memory_delete", `{"scope":"organization","key":"x","revision":1}`, fault.ToolArgumentsInvalid},
		"what does not stand":   {"memory_delete", `{"scope":"user","key":"x","revision":1}`, fault.MemoryRevisionConflict},
	} {
		t.Run(name, func(t *testing.T) {
			got, text := newStand(t, remembering).use(t, "run-1", c.tool, c.args)
			if e := of[event.ToolError](got); len(e) != 1 || e[0].Code != string(c.code) || !strings.Contains(text, string(c.code)) {
				t.Errorf("%+v, the model reads %s", e, text)
			}
		})
	}
	got, _ := newStand(t).use(t, "run-1", "memory_get", `{"scope":"user","key":"x"}`)
	if w := of[event.Warning](got); len(w) != 1 || w[0].Code != "unknown_tool" {
		t.Error("memory is there without a scope")
	}
}

// What the facade wants approved a person is asked about, and it is done in the
// run that carries the decision, as it was approved or edited.
func TestMemoryThatNeedsApproval(t *testing.T) {
	const put = `{"scope":"user","key":"how","content":"so","revision":0,"kind":"procedural"}`
	for name, c := range map[string]struct {
		decision event.Decision
		edited   string
		want     string
	}{
		"approved": {event.DecisionApprove, "", "so"},
		"edited":   {event.DecisionEdit, strings.Replace(put, `"so"`, `"otherwise"`, 1), "otherwise"},
		"rejected": {event.DecisionReject, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, remembering, func(c *harness.Construction) { c.Interrupts.ToolApproval = true })
			s.model.play(callsTool("memory_put", put))
			before := s.run(t, "run-1", "remember")
			asked := before.wantInterrupted(t).ToolApprovals
			if len(asked) != 1 || asked[0].ToolName != "cofferdam.memory_put" || string(asked[0].ToolArgs) != put || len(s.memory.records) != 0 {
				t.Fatalf("asked %+v, remembered %v", asked, s.memory.records)
			}
			s.memory.approved = []string{asked[0].ToolCallID}
			decided := each(before.wantInterrupted(t), c.decision)
			if c.edited != "" {
				decided.Tools[0].Arguments = event.Object(c.edited)
			}
			s.model.play(answer1("done"))
			s.decide(t, "run-2", before, decided).wantFinished(t, "stop")
			if got := string(s.memory.records["user/how"].Content); got != c.want {
				t.Errorf("remembered %q, want %q", got, c.want)
			}
		})
	}
}
