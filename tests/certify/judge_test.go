package certify

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/impostor"
)

// violation is what a check has to notice.
type violation struct {
	requirement int
	what        string
	verdict     error
}

// A check that cannot fail is worthless: each judge is given what a broken installation
// would show, and what a sound one does.
func TestEachViolationIsNoticed(t *testing.T) {
	for _, v := range violations(t) {
		if v.verdict == nil {
			t.Errorf("requirement %d: %s, and nobody minds", v.requirement, v.what)
		}
	}
	for what, err := range sound(t) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func seats() []seat {
	return []seat{{"hs_a", "c1", "i1", "spiffe://x/1", 11, 1, true}, {"hs_b", "c2", "i2", "spiffe://x/2", 12, 1, true}}
}

func outlivedBy(change func(*outlived)) outlived {
	seen := outlived{
		calls:  []impostor.Call{{What: "statefacade write"}, {What: "toolbroker call"}},
		lawful: []string{impostor.Granted, impostor.Granted}, stale: []string{staleLease, staleLease},
		before: record{4, "run.error sandbox_evicted", 1, 2}, after: record{4, "run.error sandbox_evicted", 1, 2},
	}
	if change != nil {
		change(&seen)
	}
	return seen
}

// log is that of a run with a tool call, with one change.
func log(t *testing.T, change func([]string) []string) turn {
	t.Helper()
	types := []string{
		`"run.started","data":{"harness_id":"native","adapter_version":"1.1.0"}`,
		`"tool.started","data":{"tool_call_id":"c","tool_name":"fs.list_directory","arguments":{}}`,
		`"tool.finished","data":{"tool_call_id":"c","result":1}`,
		`"text.started","data":{"message_id":"m","role":"assistant"}`,
		`"text.delta","data":{"message_id":"m","delta":"x"}`,
		`"text.finished","data":{"message_id":"m"}`,
		`"run.finished","data":{"outcome":"success","stop_reason":"stop","thread_state":{"durability":"committed","durable_revision":1,"head_ref":"head-1"}}`,
	}
	if change != nil {
		types = change(types)
	}
	r := turn{Started: apiclient.Started{RunID: "run_1"}, conversation: "c-1"}
	for i, rest := range types {
		var e apiclient.Event
		raw := fmt.Sprintf(`{"version":1,"run_id":"run_1","conversation_id":"c-1","sequence":%d,"timestamp":"2026-01-01T00:00:00.000Z","namespace":[],"type":%s}`, i, rest)
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			t.Fatal(err)
		}
		r.events = append(r.events, e)
	}
	return r
}

func violations(t *testing.T) []violation {
	t.Helper()
	var all []violation
	add := func(n int, what string, err error) { all = append(all, violation{n, what, err}) }

	for what, change := range map[string]func([]seat){
		"two bindings in one instance":    func(s []seat) { s[1].Instance = s[0].Instance },
		"two bindings in one process":     func(s []seat) { s[1].PID = s[0].PID },
		"two bindings with one claim":     func(s []seat) { s[1].Claim = s[0].Claim },
		"two bindings with one identity":  func(s []seat) { s[1].SPIFFEID = s[0].SPIFFEID },
		"a binding without a live worker": func(s []seat) { s[1].Alive = false },
	} {
		s := seats()
		change(s)
		add(1, what, judgeDistinct(s))
	}
	add(1, "a single binding", judgeDistinct(seats()[:1]))

	add(2, "another worker for the next turn", judgeReuse(seats()))
	add(2, "a single turn", judgeReuse(seats()[:1]))
	add(2, "a cancelled run that one replica calls finished", judgeEnds([]string{"run.cancelled client_request", "run.finished"}, "run.cancelled client_request"))
	add(2, "nobody who was told an end", judgeEnds(nil, "run.finished"))

	for what, change := range map[string]func(*outlived){
		"the fence is off":                     func(o *outlived) { o.stale[0] = impostor.Granted },
		"a stale worker told something else":   func(o *outlived) { o.stale[1] = "unauthenticated" },
		"a worker that never had the right":    func(o *outlived) { o.lawful[1] = "capability_missing" },
		"a stale worker that was not answered": func(o *outlived) { o.stale = nil },
		"no call at all":                       func(o *outlived) { o.calls, o.lawful, o.stale = nil, nil, nil },
	} {
		add(4, what, judgeFenced(outlivedBy(change)))
	}
	for what, change := range map[string]func(*record){
		"a stale event":     func(r *record) { r.Events++ },
		"a stale commit":    func(r *record) { r.Revision++ },
		"a stale tool call": func(r *record) { r.Calls++ },
		"a second end":      func(r *record) { r.Terminal = "run.finished" },
	} {
		seen := outlivedBy(nil)
		change(&seen.after)
		add(4, what, judgeInert(seen.before, seen.after))
	}
	for what, d := range map[string]decisions{
		"two decisions on one interrupt":  {200, 200, 200, 409},
		"a decision of an earlier epoch":  {200, 200, 409, 200},
		"a decision that is not repeated": {200, 409, 409, 409},
		"a decision that is not taken":    {500, 200, 409, 409},
	} {
		add(4, what, judgeDecisions(d))
	}

	more(t, add)
	newer(add)
	for what, change := range map[string]func([]string) []string{
		"a log without its beginning":    func(s []string) []string { return s[1:] },
		"a log without an end":           func(s []string) []string { return s[:len(s)-1] },
		"a result without a call":        func(s []string) []string { return append(s[:1:1], s[2:]...) },
		"an event after the end":         func(s []string) []string { return append(s, s[3]) },
		"a delta of what was not begun":  func(s []string) []string { return append(s[:3:3], s[4:]...) },
		"a run that calls no tool":       func(s []string) []string { return append(s[:1:1], s[3:]...) },
		"an event that nobody knows":     func(s []string) []string { s[4] = `"text.exploded","data":{}`; return s },
		"a field that nobody knows":      func(s []string) []string { s[4] = strings.Replace(s[4], `"delta"`, `"dleta"`, 1); return s },
		"a tool call that is left open":  func(s []string) []string { return append(s[:2:2], s[3:]...) },
		"nothing at all":                 func([]string) []string { return nil },
		"a message that ends two times ": func(s []string) []string { return append(s[:6:6], s[5], s[6]) },
	} {
		add(9, what, judgeCanonical(log(t, change)))
	}
	whole := log(t, nil).events
	add(9, "a reader that misses an event", judgeSame(whole, whole[1:]))
	add(9, "a reader that reads another text", judgeSame(whole[:1], whole[1:2]))
	add(9, "readers of nothing", judgeSame(nil, nil))
	return all
}

func sound(t *testing.T) map[string]error {
	t.Helper()
	seen := outlivedBy(nil)
	one := seats()[0]
	return map[string]error{
		"distinct":  judgeDistinct(seats()),
		"reuse":     judgeReuse([]seat{one, one}),
		"ends":      judgeEnds([]string{"run.finished"}, "run.finished"),
		"fenced":    judgeFenced(seen),
		"inert":     judgeInert(seen.before, seen.after),
		"decisions": judgeDecisions(decisions{http.StatusAccepted, http.StatusOK, http.StatusConflict, http.StatusConflict}),
		"canonical": judgeCanonical(log(t, nil)),
		"same":      judgeSame(log(t, nil).events, log(t, nil).events),
		"bounded":   judgeBounded(bounded{1, "sh: 1: Cannot fork", []string{"Cannot fork"}}),
		"memory":    judgeMemory(recalls(nil)),
		"traces":    judgeTraces(spansOfARun(), along()),
		"keys":      judgeAttributes(spansOfARun()),
		"absence":   judgeAbsence(absence{[]string{"run.finished"}, 0, 3, true}),
	}
}
