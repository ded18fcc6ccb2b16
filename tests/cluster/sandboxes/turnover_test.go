//go:build cluster

package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cofferdam.dev/tests/cluster/internal/installation"
	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/apiclient"
)

const (
	// someBindings is how many there are where BINDINGS does not say, and someAtOnce how
	// many of them work at a time where AT_ONCE does not: more than a small machine starts
	// at a time make it slower.
	someBindings = 24
	someAtOnce   = 6
	// progressEvery is after how many bindings a line says so: a thousand take a third of an hour.
	progressEvery = 50
	// tokenLife is how long one token of the callers is used.
	tokenLife = 5 * time.Minute
)

// TestTurnover lets many bindings, some at a time and never more than [crowdSize], each run a turn in a
// sandbox and give it back. No claim, sandbox or pod is anybody's twice, and nothing is left: in the API, and in the node.
func TestTurnover(t *testing.T) {
	bindings := number(t, "BINDINGS", someBindings)
	i := theInstallation(t)
	lightTemplate(t, i)
	emptyPool(t, i.Cluster, crowd, light)
	s := &turnover{Installation: i, distinct: map[string]string{}}
	watched := s.watch(t)
	begun := time.Now()
	var next, done atomic.Int64
	var wg sync.WaitGroup
	fresh := s.clients(t)
	for range number(t, "AT_ONCE", someAtOnce) {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(bindings) && t.Context().Err() == nil; n = next.Add(1) {
				if err := s.binding(t.Context(), fresh, n); err != nil {
					t.Error(err)
					return
				}
				if done := done.Add(1); done%progressEvery == 0 {
					t.Logf("%d of %d bindings came and went in %.0f s", done, bindings, time.Since(begun).Seconds())
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begun)
	most := watched()
	if most > crowdSize {
		t.Errorf("%d claims were there at once, want at most %d", most, crowdSize)
	}
	if n := len(s.distinct); !t.Failed() && n != 3*bindings {
		t.Errorf("%d UIDs of %d bindings", n, bindings)
	}
	s.nothingLeft(t)
	if t.Failed() {
		return
	}
	report(t, struct {
		Target    string `json:"target"`
		Bindings  int    `json:"bindings"`
		Distinct  int    `json:"distinct_uids"`
		Most      int    `json:"most_claims_at_once"`
		Again     int64  `json:"asked_again_for_capacity"`
		Left      int    `json:"left"`
		Seconds   int    `json:"seconds"`
		PerMinute int    `json:"bindings_per_minute"`
	}{"cluster-bindings", bindings, len(s.distinct), most, s.capacity.Load(), 0, int(took.Seconds()), int(float64(bindings) / took.Minutes())})
}

// number is that of a variable.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: a number", name, text)
	}
	return n
}

type turnover struct {
	*installation.Installation

	capacity atomic.Int64

	mu sync.Mutex
	// distinct are all UIDs, by what they are of, and pods those of pods.
	distinct map[string]string
	pods     []string
	claims   []string
}

// clients gives clients with a token that lives. Making one takes programs, so it is for all.
func (s *turnover) clients(t *testing.T) func() (user, operator *apiclient.Client) {
	t.Helper()
	user, operator, made := s.User(t), s.Operator(t), time.Now()
	var mu sync.Mutex
	return func() (*apiclient.Client, *apiclient.Client) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(made) > tokenLife {
			user, operator, made = s.User(t), s.Operator(t), time.Now()
		}
		return user, operator
	}
}

// binding is one of them, from its first turn until its claim has gone.
func (s *turnover) binding(ctx context.Context, clients func() (user, operator *apiclient.Client), n int64) error {
	user, operator := clients()
	c := newConversation(user, operator, crowd)
	b, err := c.turn(ctx, ">>say here")
	for errors.Is(err, errCapacity) { // a claim that is ending counts as well
		s.capacity.Add(1)
		if !pause(ctx, 200*time.Millisecond) {
			break
		}
		b, err = c.turn(ctx, ">>say here")
	}
	if err != nil {
		return fmt.Errorf("binding %d: %w", n, err)
	}
	if err := s.note(n, b); err != nil {
		return err
	}
	if err := c.clear(ctx); err != nil {
		return fmt.Errorf("binding %d: clear: %w", n, err)
	}
	return s.gone(ctx, b.Lease.ClaimName)
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *turnover) note(n int64, b apiclient.Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, uid := range map[string]string{"claim": b.Lease.ClaimUID, "sandbox": b.Lease.SandboxUID, "pod": b.Lease.InstanceUID} {
		if other, twice := s.distinct[uid]; twice || uid == "" {
			return fmt.Errorf("binding %d has the %s %q of %s", n, kind, uid, other)
		}
		s.distinct[uid] = fmt.Sprintf("the %s of binding %d", kind, n)
	}
	s.pods, s.claims = append(s.pods, b.Lease.InstanceUID), append(s.claims, b.Lease.ClaimUID)
	return nil
}

// gone waits until a claim is, and with it, deleted in the foreground, its sandbox and pod.
func (s *turnover) gone(ctx context.Context, claim string) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Patience)
	defer cancel()
	for {
		list, err := s.Cluster.Dynamic.Resource(kube.Claims).Namespace(installation.Sandboxes).List(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + claim, ResourceVersion: "0",
		})
		if err == nil && len(list.Items) == 0 {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return errors.Join(fmt.Errorf("claim %s is there", claim), err)
		}
	}
}

// watch counts the claims that are there until it is asked how many there were at most.
func (s *turnover) watch(t *testing.T) func() int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	most := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for pause(ctx, 100*time.Millisecond) {
			list, err := s.Cluster.Dynamic.Resource(kube.Claims).Namespace(installation.Sandboxes).List(ctx, metav1.ListOptions{})
			if err == nil {
				most = max(most, len(list.Items))
			}
		}
	})
	return func() int {
		cancel()
		wg.Wait()
		return most
	}
}

// leftovers is what of pods the node still has: containers and sandboxes of containerd, cgroups and folders by the UID of
// the pod, and network namespaces, of which there is one for each pod that lives.
const leftovers = `
for id in $("$CLUSTER_BIN/ctr" -n k8s.io containers ls -q); do
	"$CLUSTER_BIN/ctr" -n k8s.io containers info "$id" | sed -n 's/.*"io.kubernetes.pod.uid": "\([^"]*\)".*/container \1/p'
done
find /sys/fs/cgroup -type d -name 'pod*' 2>/dev/null | sed 's,.*/pod,cgroup ,'
ls /var/lib/kubelet/pods | sed 's/^/folder /'
ls /run/netns | sed 's/^/netns /'
`

// nothingLeft waits until nothing of the bindings is in the cluster or in its node.
func (s *turnover) nothingLeft(t *testing.T) {
	t.Helper()
	ours := map[string]bool{}
	for _, uid := range s.pods {
		ours[uid] = true
	}
	claims := map[string]bool{}
	for _, uid := range s.claims {
		claims[uid] = true
	}
	kube.Eventually(t, "the end of all that the bindings had", func(ctx context.Context) error {
		list, err := s.Cluster.Dynamic.Resource(kube.Claims).Namespace(installation.Sandboxes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if n := len(list.Items); n > 0 {
			return fmt.Errorf("%d claims are left", n)
		}
		boxes, err := s.Cluster.Dynamic.Resource(kube.Sandboxes).Namespace(installation.Sandboxes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, box := range boxes.Items {
			for _, o := range box.GetOwnerReferences() {
				if claims[string(o.UID)] || ours[string(box.GetUID())] {
					return fmt.Errorf("sandbox %s is left", box.GetName())
				}
			}
		}
		all, err := s.Cluster.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for n := range all.Items {
			if ours[string(all.Items[n].UID)] {
				return fmt.Errorf("pod %s is left", all.Items[n].Name)
			}
		}
		return left(s.Cluster.Node(t, "bash", "-c", leftovers), ours, len(all.Items)) //nolint:contextcheck // it has the test's
	})
}

// left judges what the node says.
func left(said string, ours map[string]bool, pods int) error {
	networks, seen := 0, map[string]bool{}
	for line := range strings.Lines(said) {
		kind, uid, _ := strings.Cut(strings.TrimSpace(line), " ")
		seen[kind] = true
		if kind == "netns" {
			networks++
		}
		if ours[uid] {
			return fmt.Errorf("a %s of pod %s is left", kind, uid)
		}
	}
	for _, kind := range []string{"container", "cgroup", "folder", "netns"} {
		if !seen[kind] {
			return fmt.Errorf("the node shows no %s at all, not even of the services", kind)
		}
	}
	if networks > pods {
		return fmt.Errorf("%d network namespaces of %d pods", networks, pods)
	}
	return nil
}
