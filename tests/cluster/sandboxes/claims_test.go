//go:build cluster

package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/apiclient"
)

// figures are of claims of one kind.
type figures struct {
	BareP50  float64 `json:"bare_ready_p50_ms"`
	BoundP50 float64 `json:"bound_p50_ms"`
	BareP95  float64 `json:"bare_ready_p95_ms"`
	BoundP95 float64 `json:"bound_p95_ms"`
	Claims   int     `json:"claims"`
}

// TestClaims times a claim of agent-sandbox from its POST until it is Ready, and one of the control plane from its POST
// until the worker has answered bind: in turns, of the same pools, warm and cold, one and twenty at a time. That every
// claim is answered is what it asserts; how fast is for people.
func TestClaims(t *testing.T) {
	if os.Getenv("CLAIMS") == "" {
		t.Skip("a benchmark: make bench-claim")
	}
	rounds := number(t, "CLAIMS", 1)
	i := theInstallation(t)
	b := &bench{Installation: i, spans: collect(t, i.Cluster), user: i.User(t), operator: i.Operator(t)}
	lightTemplate(t, i)
	emptyPool(t, i.Cluster, warm, light)
	emptyPool(t, i.Cluster, cold, light)
	of := map[string]figures{}
	for _, kind := range []struct {
		name, pool string
		rounds, at int
	}{
		{"warm_1", warm, rounds, 1},
		{"cold_1", cold, max(rounds/2, 1), 1},
		{"warm_20", warm, max(rounds/10, 1), 20},
		{"cold_20", cold, max(rounds/10, 1), 20},
	} {
		of[kind.name] = b.alternate(t, kind.pool, kind.rounds, kind.at)
	}
	report(t, struct {
		Target string `json:"target"`
		figures

		Of map[string]figures `json:"of"`
	}{"bench-claim", of["warm_1"], of})
}

type bench struct {
	*installation.Installation

	spans          *collector
	user, operator *apiclient.Client
}

// alternate makes bare and bound claims in turns, so that what else the machine does hits both.
func (b *bench) alternate(t *testing.T, pool string, rounds, at int) figures {
	t.Helper()
	keep := 0
	if pool == warm {
		keep = max(at, 4)
	}
	b.scale(t, pool, keep)
	defer b.scale(t, pool, 0)
	var bare, whole []time.Duration
	steps := map[string][]time.Duration{}
	for n := range rounds {
		for _, kind := range []bool{n%2 == 0, n%2 != 0} {
			b.full(t, pool, keep)
			if kind {
				bare = append(bare, b.bare(t, pool, at)...)
				continue
			}
			for _, one := range b.bound(t, pool, at) {
				whole = append(whole, one.whole)
				for name, d := range one.steps {
					steps[name] = append(steps[name], d)
				}
			}
		}
	}
	f := figures{percentile(bare, 50), percentile(whole, 50), percentile(bare, 95), percentile(whole, 95), len(whole)}
	t.Logf("%s, %d at a time: %+v", pool, at, f)
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		t.Logf("  %-16s p50 %.1f ms, p95 %.1f ms", name, percentile(steps[name], 50), percentile(steps[name], 95))
	}
	return f
}

func percentile(of []time.Duration, p int) float64 {
	sorted := slices.Sorted(slices.Values(of))
	if len(sorted) == 0 {
		return 0
	}
	d := sorted[min(len(sorted)*p/100, len(sorted)-1)]
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

func (b *bench) scale(t *testing.T, pool string, replicas int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := b.Cluster.Dynamic.Resource(kube.WarmPools).Namespace(installation.Sandboxes).Patch(context.WithoutCancel(t.Context()), pool, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// full waits until a pool has what it keeps, and the pods of the claims before are gone.
func (b *bench) full(t *testing.T, pool string, keep int) {
	t.Helper()
	kube.Eventually(t, "a full pool", func(ctx context.Context) error {
		p, err := b.Cluster.Dynamic.Resource(kube.WarmPools).Namespace(installation.Sandboxes).Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, _, _ := unstructured.NestedInt64(p.Object, "status", "readyReplicas")
		if have != int64(keep) {
			return fmt.Errorf("%d of %d are ready", have, keep)
		}
		claims, err := b.claims().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(claims.Items) > 0 {
			return fmt.Errorf("%d claims are there", len(claims.Items))
		}
		return nil
	})
}

func (b *bench) claims() dynamic.ResourceInterface {
	return b.Cluster.Dynamic.Resource(kube.Claims).Namespace(installation.Sandboxes)
}

// bare is agent-sandbox alone.
func (b *bench) bare(t *testing.T, pool string, at int) []time.Duration {
	t.Helper()
	out, errs := make([]time.Duration, at), make([]error, at)
	var wg sync.WaitGroup
	for n := range at {
		wg.Go(func() { out[n], errs[n] = b.ready(t.Context(), pool, fmt.Sprintf("bare-%d", n)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for n := range at {
		foreground := metav1.DeletePropagationForeground
		if err := b.claims().Delete(t.Context(), fmt.Sprintf("bare-%d", n), metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	return out
}

func (b *bench) ready(ctx context.Context, pool, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Patience)
	defer cancel()
	watching, err := b.claims().Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return 0, err
	}
	defer watching.Stop()
	begun := time.Now()
	if _, err := b.claims().Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kube.Claims.GroupVersion().String(), "kind": "SandboxClaim", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"warmPoolRef": map[string]any{"name": pool}},
	}}, metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	for {
		select {
		case event, open := <-watching.ResultChan():
			object, ok := event.Object.(*unstructured.Unstructured)
			if !open || !ok {
				return 0, fmt.Errorf("the watch of %s ended: %v", name, event.Object)
			}
			if status, _ := kube.Condition(object, "Ready"); status == "True" {
				return time.Since(begun), nil
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("%s is not ready: %w", name, ctx.Err())
		}
	}
}

// bound is the control plane, as it does it for a run.
func (b *bench) bound(t *testing.T, agent string, at int) []bound {
	t.Helper()
	names, errs := make([]string, at), make([]error, at)
	talks := make([]*conversation, at)
	var wg sync.WaitGroup
	for n := range at {
		talks[n] = newConversation(b.user, b.operator, agent)
		wg.Go(func() {
			binding, err := talks[n].turn(t.Context(), ">>say here")
			errs[n] = err
			if err == nil {
				names[n] = binding.Lease.ClaimName
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	out := make([]bound, at)
	for n := range at {
		out[n] = b.spans.of(t, names[n])
		if err := talks[n].clear(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
