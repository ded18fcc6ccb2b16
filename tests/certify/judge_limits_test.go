package certify

import (
	"testing"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"cofferdam.dev/tests/internal/impostor"
	"cofferdam.dev/tests/internal/secrets"
)

func recalls(change func([]recalled)) []recalled {
	seen := []recalled{
		{"a", impostor.Granted, impostor.Granted}, {"b", absent, absent}, {"c", conflict, conflict}, {"d", denied, denied},
	}
	if change != nil {
		change(seen)
	}
	return seen
}

// spansOfARun are those of a run: one trace, of all services.
func spansOfARun() []span {
	var all []span
	for _, service := range along() {
		all = append(all, span{Trace: "1", Service: servicePrefix + service, Name: "x", Keys: []string{"rpc.method", "cofferdam.generation"}})
	}
	return append(all, span{Trace: "2", Service: servicePrefix + "capability", Name: "y"})
}

// newer are violations of requirements 8, 14 and 15.
func newer(add func(int, string, error)) {
	add(8, "a sandbox without a bound", judgeBounded(bounded{0, "killed", []string{"killed"}}))
	add(8, "a hog that nothing stops", judgeBounded(bounded{1, "without end exit status 0", []string{"killed", "Cannot fork"}}))
	add(8, "a run that says nothing of its limit", judgeOneOf("run.error sandbox_evicted", []string{"run.error sandbox_limit"}))

	for what, change := range map[string]func([]recalled){
		"a record of another agent that is read":      func(r []recalled) { r[1].Said = impostor.Granted },
		"a change of a revision that is gone":         func(r []recalled) { r[2].Said = impostor.Granted },
		"a shared scope that is written":              func(r []recalled) { r[3].Said = impostor.Granted },
		"a record that its own conversation has lost": func(r []recalled) { r[0].Said = absent },
	} {
		add(14, what, judgeMemory(recalls(change)))
	}
	add(14, "nothing that is refused", judgeMemory(recalls(nil)[:1]))

	add(15, "no span", judgeTraces(nil, along()))
	broken := spansOfARun()
	broken[1].Trace = "3" // what comes behind the worker begins anew
	add(15, "a trace that is torn", judgeTraces(broken, along()))
	add(15, "a service that exports nothing", judgeTraces(spansOfARun()[:2], along()))
	telling := spansOfARun()
	telling[0].Keys = append(telling[0].Keys, "user.email")
	add(15, "an attribute that nobody allowed", judgeAttributes(telling))
	add(15, "a collector that nobody misses", judgeAbsence(absence{[]string{"run.finished"}, 2, 2, true}))
	add(15, "a run that ends with the collector", judgeAbsence(absence{[]string{"run.error dependency_unavailable"}, 0, 2, true}))
	add(15, "spans that never come again", judgeAbsence(absence{[]string{"run.finished"}, 0, 2, false}))
	add(15, "a text in a span", judgeSights(inSpans(servicePrefix+"controlplane says canary", secrets.Secrets{}, []string{"canary"})))
	add(15, "a key in a span", judgeSights(inSpans(servicePrefix+"controlplane has k3y", secrets.Secrets{"key": "k3y"}, nil)))
	add(15, "spans of nobody", judgeSights(inSpans("", secrets.Secrets{}, []string{"canary"})))
}

// What is judged of spans is what stands in them, and in what belongs to them.
func TestSpansAreRead(t *testing.T) {
	text := func(key, value string) *commonv1.KeyValue {
		return &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: value}}}
	}
	got := spansOf(&tracev1.TracesData{ResourceSpans: []*tracev1.ResourceSpans{{
		Resource: &resourcev1.Resource{Attributes: []*commonv1.KeyValue{text("service.name", "cofferdam-toolbroker")}},
		ScopeSpans: []*tracev1.ScopeSpans{{Spans: []*tracev1.Span{{
			TraceId: []byte{1, 2}, Name: "call", Attributes: []*commonv1.KeyValue{text("a", "x")},
			Events: []*tracev1.Span_Event{{Attributes: []*commonv1.KeyValue{text("b", "y")}}},
		}}}},
	}}})
	if len(got) != 1 || got[0].Trace != "0102" || got[0].Service != "cofferdam-toolbroker" || len(got[0].Keys) != 2 {
		t.Errorf("%+v", got)
	}
}

// A group is known by its controllers, and its name may have anything in it.
func TestGroupsAreFound(t *testing.T) {
	got, err := parseGroups("4:memory:/a:b\n3:cpu,cpuacct:/c\n0::/u\n")
	if err != nil || got["memory"] != "/a:b" || got["cpu"] != "/c" || got["cpuacct"] != "/c" || got[""] != "/u" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseGroups("nothing"); err == nil {
		t.Error("what is no list of groups was taken for one")
	}
}
