//go:build cluster

package sandboxes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
)

var templates = schema.GroupVersionResource{Group: kube.WarmPools.Group, Version: kube.WarmPools.Version, Resource: "sandboxtemplates"}

// step is one of a script; see the worker's scripted adapter.
type step map[string]any

func plays(t *testing.T, steps ...step) string {
	t.Helper()
	raw, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const overLimit = "run.error sandbox_limit"

// Whatever of a pod a sandbox uses up, its run ends as sandbox_limit where the cluster says so, a neighbour in another pod works on, and its
// conversation goes on in another sandbox.
func TestLimits(t *testing.T) {
	i := theInstallation(t)
	scriptedTemplate(t, i, "native", script, nil)
	scriptedTemplate(t, i, "native", brief, []any{"--cpu-seconds=5"})
	const mib = 1 << 20
	for name, row := range map[string]struct {
		agent, end string
		steps      []step
	}{
		"memory":    {script, overLimit, []step{{"do": "memory_hog", "bytes": 1 << 34}}},
		"processes": {script, overLimit, []step{{"do": "goroutines", "count": 5000, "threads": true, "ms": 1000}}},
		"processor": {brief, overLimit, []step{{"do": "spin", "ms": 600_000, "threads": 8}}},
		"workspace": {script, overLimit, []step{{"do": "disk", "folder": "/workspace", "bytes": 48 * mib, "ms": 300_000}}},
		"all files": {script, overLimit, []step{{"do": "parallel", "branches": [][]step{
			{{"do": "disk", "folder": "/workspace", "bytes": 28 * mib, "ms": 300_000}}, {{"do": "disk", "folder": "/tmp", "bytes": 28 * mib, "ms": 300_000}},
		}}}},
		"lifetime": {hasty, overLimit, []step{{"do": "delay", "ms": 600_000}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := i.Talk(t, row.agent)
			var r installation.Turn
			besides(t, i, func() {
				r = c.Say(t, plays(t, append([]step{{"do": "text", "text": "I am going on"}}, row.steps...)...))
			})
			if end := r.Ending(); end != row.end {
				t.Errorf("ended as %s, want %s: %s", end, row.end, r)
			}
			if next := c.Say(t, plays(t, step{"do": "recall"})); next.Ending() != "run.finished" {
				t.Errorf("the next turn did not finish: %s", next)
			}
		})
	}
}

// scriptedTemplate makes a template like another one, with the scripted harness and small limits, and an empty pool of it.
func scriptedTemplate(t *testing.T, i *installation.Installation, of, name string, args []any) {
	t.Helper()
	derive(t, i, of, name, func(pod, worker map[string]any) {
		for n, arg := range list(t, worker, "args") {
			if strings.HasPrefix(fmt.Sprint(arg), "--harness=") {
				list(t, worker, "args")[n] = "--harness=scripted"
			}
		}
		worker["args"] = append(list(t, worker, "args"), args...)
		worker["resources"] = map[string]any{
			"requests": map[string]any{"cpu": "5m", "memory": "48Mi", "ephemeral-storage": "16Mi"},
			"limits":   map[string]any{"cpu": "1", "memory": "192Mi", "ephemeral-storage": "48Mi"},
		}
		for _, v := range list(t, pod, "volumes") {
			if volume := object(t, v); volume["emptyDir"] != nil {
				volume["emptyDir"] = map[string]any{"sizeLimit": "32Mi"}
			}
		}
	})
	emptyPool(t, i.Cluster, name, name)
}

// lightTemplate is the overlay's, asking for less: the test's node has two processors.
func lightTemplate(t *testing.T, i *installation.Installation) {
	t.Helper()
	derive(t, i, "native", light, func(_, worker map[string]any) {
		object(t, worker, "resources")["requests"] = map[string]any{"cpu": "5m", "memory": "48Mi", "ephemeral-storage": "8Mi"}
	})
}

// derive makes a template like another one.
func derive(t *testing.T, i *installation.Installation, of, name string, change func(pod, worker map[string]any)) {
	t.Helper()
	was, err := i.Cluster.Dynamic.Resource(templates).Namespace(installation.Sandboxes).Get(t.Context(), of, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := unstructured.NestedMap(was.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	pod := object(t, spec, "podTemplate", "spec")
	change(pod, object(t, list(t, pod, "containers")[0]))
	raw, err := json.Marshal(map[string]any{
		"apiVersion": was.GetAPIVersion(), "kind": was.GetKind(), "metadata": map[string]any{"name": name, "labels": was.GetLabels()}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	i.Cluster.MustApply(t, installation.Sandboxes, string(raw))
}

func object(t *testing.T, in any, path ...string) map[string]any {
	t.Helper()
	for _, name := range append(path, "") {
		m, ok := in.(map[string]any)
		if !ok {
			t.Fatalf("%v is not an object", in)
		}
		if name == "" {
			return m
		}
		in = m[name]
	}
	return nil
}

func list(t *testing.T, in map[string]any, name string) []any {
	t.Helper()
	l, ok := in[name].([]any)
	if !ok || len(l) == 0 {
		t.Fatalf("%s: %v is not a list", name, in[name])
	}
	return l
}

// besides runs an attack while a neighbour works, each of whose turns must finish. At least one of them begins while the
// attack is under way.
func besides(t *testing.T, i *installation.Installation, attack func()) {
	t.Helper()
	neighbour := i.Talk(t, installation.Agent)
	neighbour.Tell(t, ">>say I am here")
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() { worked <- work(context.WithoutCancel(ctx), ctx.Done(), neighbour) }()
	defer func() { // also where the attack ends the test
		cancel()
		if err := <-worked; err != nil {
			t.Errorf("the neighbour: %v", err)
		}
	}()
	attack()
}

func work(ctx context.Context, done <-chan struct{}, c *installation.Talk) error {
	for turns := 0; ; turns++ {
		run, err := c.Start(ctx, ">>call fs.list_directory {\"path\":\".\"}\n>>say I am fine")
		if err != nil {
			return fmt.Errorf("turn %d: %w", turns, err)
		}
		r, err := c.Follow(ctx, run)
		if err != nil {
			return fmt.Errorf("turn %d: %w", turns, err)
		}
		if r.Ending() != "run.finished" {
			return fmt.Errorf("turn %d did not finish: %s", turns, r)
		}
		select {
		case <-done:
			return nil
		default:
		}
	}
}
