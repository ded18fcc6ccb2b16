package kubernetes

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/pkg/fault"
)

// lists counts those that wait for etcd and those that need not, and answers with what
// there was when old was filled.
type lists struct {
	now, atLeast atomic.Int32
	old          atomic.Pointer[runtime.Object]
	fail         atomic.Pointer[error]
}

func (c *cluster) countLists() *lists {
	l := &lists{}
	count := func(a kubetesting.Action) (bool, runtime.Object, error) {
		action, ok := a.(kubetesting.ListActionImpl)
		switch {
		case !ok || action.ListRestrictions.Labels.Empty():
			return false, nil, nil // an informer's
		case action.ListOptions.ResourceVersion == "":
			l.now.Add(1)
			return false, nil, nil
		}
		l.atLeast.Add(1)
		if action.ListOptions.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan {
			c.t.Errorf("a list of version %s with match %q", action.ListOptions.ResourceVersion, action.ListOptions.ResourceVersionMatch)
		}
		if err := l.fail.Load(); err != nil {
			return true, nil, *err
		}
		if old := l.old.Load(); old != nil && a.GetResource().Resource == "pods" {
			return true, *old, nil
		}
		return false, nil, nil
	}
	c.core.PrependReactor("list", "pods", count)
	c.custom.PrependReactor("list", "sandboxes", count)
	return l
}

// What the caches know is looked at without waiting for what etcd has to say of other
// objects, and what is given was read beside that list: a list may be older.
func TestAnOldListGivesNothingThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		l := c.countLists()
		in, err := p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		synctest.Wait()
		l.now.Store(0)
		again, err := p.Claim(t.Context(), claimOf("hc-1"))
		if err != nil || again != in || l.now.Load() != 0 || l.atLeast.Load() == 0 {
			t.Fatalf("%+v, %v; %d lists of now, %d others", again, err, l.now.Load(), l.atLeast.Load())
		}

		pods, err := c.core.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
		c.must(err)
		old := pods.DeepCopyObject()
		l.old.Store(&old)
		for _, change := range []func(*corev1.Pod) bool{
			func(pod *corev1.Pod) bool { pod.UID = "pod-2"; return true },
			func(*corev1.Pod) bool { return false },
		} {
			c.pod("pool-1", change)
			if alive, err := p.Alive(t.Context(), "hc-1", in.UID); err != nil || alive {
				t.Errorf("the list has a pod that is not there: alive %v, %v", alive, err)
			}
		}
		c.must(p.Close())
	})
}

// An API server that is behind the caches is asked for what there is now.
func TestAListOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		l := c.countLists()
		in, err := p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		synctest.Wait()
		late := error(&apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 504, Reason: metav1.StatusReasonTimeout,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}},
		}})
		l.fail.Store(&late)
		began := time.Now()
		again, err := p.Claim(t.Context(), claimOf("hc-1"))
		if err != nil || again != in || time.Since(began) > time.Second {
			t.Errorf("%+v, %v, after %v", again, err, time.Since(began))
		}
		c.must(p.Close())
	})
}

// A second sandbox that came since is found however the claim was looked at before.
func TestASecondSandboxLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		in, err := p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		synctest.Wait()
		raw, err := c.custom.Tracker().Get(sandboxResource, namespace, "pool-1")
		c.must(err)
		u, ok := raw.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("a sandbox is %T", raw)
		}
		second, err := typed[agents.Sandbox](u)
		c.must(err)
		second.Name, second.UID, second.ResourceVersion = "second", "second", "9"
		c.must(c.custom.Tracker().Create(sandboxResource, object(t, second), namespace))
		synctest.Wait()
		if alive, err := p.Alive(t.Context(), "hc-1", in.UID); err != nil || alive {
			t.Errorf("alive beside another: %v, %v", alive, err)
		}
		c.must(p.Close())
	})
}

// What nothing is told of is looked at ever more seldom: those looks, of many claims, would be what makes a cluster slow.
func TestLooksInVainBecomeSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = func(w *made) { w.sandboxes, w.pods, w.claim.Status = nil, nil, extensions.SandboxClaimStatus{} }
		p := c.provider()
		l := c.countLists()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := p.Claim(ctx, claimOf("hc-1")); !fault.Is(err, fault.DeadlineExceeded) {
			t.Errorf("a claim that nothing answers: %v", err)
		}
		// After 1 s, 3, 7, 12, 17, 22 and 27, of sandboxes and of pods each.
		if n := l.now.Load(); n != 14 {
			t.Errorf("%d lists in 30 s, want 14", n)
		}
		c.must(p.Close())
	})
}

// While the caches know of something that is left of a claim, its end is not asked for at each change.
func TestAnEndThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		_, err := p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		synctest.Wait()
		c.set(func() { c.keeps = true })
		l := c.countLists()
		ctx, cancel := context.WithTimeout(t.Context(), lookAfter)
		defer cancel()
		released := make(chan error, 1)
		go func() { released <- p.Release(ctx, "hc-1") }()
		synctest.Wait()
		for n := range 10 {
			c.pod("pool-1", func(pod *corev1.Pod) bool { pod.ResourceVersion = fmt.Sprint("again-", n); return true })
			synctest.Wait()
		}
		if n := l.now.Load(); n != 2 {
			t.Errorf("%d lists while a pod ended, want the first two", n)
		}
		if err := <-released; !fault.Is(err, fault.DeadlineExceeded) {
			t.Errorf("released what is there: %v", err)
		}
		c.must(p.Close())
	})
}
