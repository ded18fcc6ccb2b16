package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubetesting "k8s.io/client-go/testing"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// A claim says nothing of whose it is, and its answer is named by UIDs.
func TestAClaimAndItsAnswer(t *testing.T) {
	c := newCluster(t)
	p := c.provider()
	in, err := p.Claim(t.Context(), claimOf("hc-1"))
	want := sandbox.Instance{
		ClaimName: "hc-1", ClaimUID: "claim-1", SandboxUID: "sandbox-1", UID: "pod-1", Address: "https://10.0.0.1:8443",
		ID: identity.Sandbox(td, "pod-1"), ImageDigest: digestOf(image),
	}
	if err != nil || in != want {
		t.Fatalf("%+v, %v", in, err)
	}
	claim, err := p.api.claim(t.Context(), "hc-1")
	c.must(err)
	if len(claim.Labels) != 1 || len(claim.Labels[environmentLabel]) != 32 || len(claim.Annotations) != 0 || len(claim.Spec.Env) != 0 ||
		len(claim.Spec.VolumeClaimTemplates) != 0 || len(claim.Spec.AdditionalPodMetadata.Labels) != 0 || claim.Spec.WarmPoolRef.Name != "workers" ||
		claim.Spec.Lifecycle.ShutdownPolicy != extensions.ShutdownPolicyDeleteForeground || time.Until(claim.Spec.Lifecycle.ShutdownTime.Time) < 23*time.Hour {
		t.Errorf("%+v", claim)
	}
	again, err := p.Claim(t.Context(), claimOf("hc-1"))
	if err != nil || again != in || c.made != 1 {
		t.Errorf("the same claim again: %+v, %v, and %d were made", again, err, c.made)
	}
	if p.Address("toolbroker") != "https://toolbroker:8443" || len(p.Weaknesses()) != 1 {
		t.Errorf("%q, %q", p.Address("toolbroker"), p.Weaknesses())
	}
}

// Twenty at once, over two replicas, twice each: as many sandboxes as names.
func TestClaimsAtOnce(t *testing.T) {
	c := newCluster(t)
	replicas := []*Provider{c.provider(), c.provider()}
	var mu sync.Mutex
	uids := map[string]map[string]bool{}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			name := fmt.Sprintf("hc-%d", i%20)
			in, err := replicas[i/20].Claim(t.Context(), claimOf(name))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if uids[name] == nil {
				uids[name] = map[string]bool{}
			}
			uids[name][in.UID] = true
		})
	}
	wg.Wait()
	distinct := map[string]bool{}
	for name, of := range uids {
		if len(of) != 1 {
			t.Errorf("%s was given %v", name, of)
		}
		for uid := range of {
			distinct[uid] = true
		}
	}
	if len(uids) != 20 || len(distinct) != 20 || len(c.claims()) != 20 {
		t.Errorf("%d names, %d pods, %d claims", len(uids), len(distinct), len(c.claims()))
	}
}

// One claim adopted two sandboxes (agent-sandbox 478), two claims one pod (431), and
// two pods stood behind one sandbox (418): nothing of it is used, and it is given back.
func TestMoreThanOneAnswer(t *testing.T) {
	for name, change := range map[string]func(*made){
		"two sandboxes": func(w *made) {
			s := w.sandboxes[0].DeepCopy()
			s.Name, s.UID = "other", "other"
			w.sandboxes = append(w.sandboxes, s)
		},
		"two pods": func(w *made) { w.pods = append(w.pods, rightPod("other", w.sandboxes[0].UID, "other", w.claim.UID)) },
		"another claim's sandbox": func(w *made) {
			w.sandboxes[0].OwnerReferences = owner(extensions.SandboxClaimKind, "hc-2", "claim-2")
		},
		"a pool's sandbox": func(w *made) {
			w.sandboxes[0].OwnerReferences = owner(extensions.SandboxWarmPoolKind, w.claim.Name, w.claim.UID)
		},
		"two owners": func(w *made) {
			w.sandboxes[0].OwnerReferences = append(w.sandboxes[0].OwnerReferences, metav1.OwnerReference{Kind: "Node", UID: "n"})
		},
		"another sandbox's pod": func(w *made) { w.pods[0].OwnerReferences = owner(agents.SandboxKind, w.pods[0].Name, "sandbox-9") },
		"nobody's pod":          func(w *made) { w.pods[0].OwnerReferences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.answer = change
			p := c.provider()
			_, err := p.Claim(within(t, 30*time.Second), claimOf("hc-1"))
			wantCode(t, name, err, fault.SandboxEvicted)
			if left := c.claims(); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
			if _, ok := p.exits.of("hc-1"); ok {
				t.Error("it counts as given")
			}
		})
	}
}

// A pod can be seen a moment before the sandbox that it belongs to: until both are
// there nothing is given and nothing refused.
func TestAPodBeforeItsSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		var late *agents.Sandbox
		c.answer = func(w *made) { late, w.sandboxes = w.sandboxes[0], nil }
		_, err := p.Claim(within(t, 3*time.Second), claimOf("hc-1"))
		wantCode(t, "a pod and no sandbox", err, fault.DeadlineExceeded)
		if _, ok := p.exits.of("hc-1"); ok {
			t.Error("it counts as given")
		}
		c.must(c.custom.Tracker().Create(sandboxResource, object(t, late), namespace))
		in, err := p.Claim(t.Context(), claimOf("hc-1"))
		if err != nil || in.UID != "pod-1" || in.SandboxUID != "sandbox-1" {
			t.Errorf("with its sandbox: %+v, %v", in, err)
		}
		c.must(p.Close())
	})
}

// A second pod of the sandbox that does not carry the claim's label is found too.
func TestAnUnlabelledSecondPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		c.answer = func(w *made) {
			second := rightPod("second", w.sandboxes[0].UID, "second", "")
			second.Labels = nil
			c.must(c.core.Tracker().Create(corev1.SchemeGroupVersion.WithResource("pods"), second, namespace))
			synctest.Wait() // the caches know
		}
		_, err := p.Claim(t.Context(), claimOf("hc-1"))
		wantCode(t, "an unlabelled second pod", err, fault.SandboxEvicted)
		c.must(p.Close())
	})
}

// What is not the profile's is refused before anything is sent to it, each time.
func TestAnotherImageIsGivenBack(t *testing.T) {
	c := newCluster(t)
	c.answer = func(w *made) { w.pods[0].Status.ContainerStatuses[0].ImageID = agentImage }
	p := c.provider()
	_, err := p.Claim(t.Context(), claimOf("hc-1"))
	wantCode(t, "another image", err, fault.WorkerMismatch)
	if left := c.claims(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	c.answer = nil
	if _, err = p.Claim(t.Context(), claimOf("hc-2")); err != nil {
		t.Fatal(err)
	}
	c.pod("pool-2", func(pod *corev1.Pod) bool {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: image}}}
		return true
	})
	_, err = p.Claim(t.Context(), claimOf("hc-2"))
	wantCode(t, "a container that came later", err, fault.WorkerMismatch)
}

func TestRefusals(t *testing.T) {
	notReady := func(reason, message string) func(*made) {
		return func(w *made) {
			w.claim.Status.Conditions = []metav1.Condition{{Type: ready, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
			w.sandboxes, w.pods = nil, nil
		}
	}
	for name, row := range map[string]struct {
		profile func(*Profile)
		answer  func(*made)
		want    fault.Code
	}{
		"empty pool":       {func(p *Profile) { p.ColdStart = false }, nil, fault.SandboxCapacity},
		"switched off":     {func(p *Profile) { p.Disabled = true }, nil, fault.SandboxCapacity},
		"no such profile":  {func(p *Profile) { p.Name = "another" }, nil, fault.WorkerMismatch},
		"quota":            {nil, notReady("ReconcilerError", `pods "x" is forbidden: exceeded quota: sandboxes`), fault.SandboxCapacity},
		"no such pool":     {nil, notReady("WarmPoolNotFound", ""), fault.WorkerMismatch},
		"no such template": {nil, notReady("TemplateNotFound", ""), fault.WorkerMismatch},
		"no node": {nil, func(w *made) {
			w.pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
		}, fault.SandboxCapacity},
		"a pod that ends":           {nil, func(w *made) { w.pods[0].Status.Phase = corev1.PodFailed }, fault.SandboxNotReady},
		"a pod that is never ready": {nil, func(w *made) { w.pods[0].Status.Conditions[0].Status = corev1.ConditionFalse }, fault.DeadlineExceeded},
		"a controller that is down": {nil, func(w *made) { w.sandboxes, w.pods, w.claim.Status = nil, nil, extensions.SandboxClaimStatus{} }, fault.DeadlineExceeded},
		"expired":                   {nil, notReady(extensions.ClaimExpiredReason, ""), fault.SandboxEvicted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.answer = row.answer
				profile := rightProfile()
				if row.profile != nil {
					row.profile(&profile)
				}
				p := c.provider(profile)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				_, err := p.Claim(ctx, claimOf("hc-1"))
				wantCode(t, name, err, row.want)
				if left := c.claims(); (len(left) != 0) != (row.want == fault.DeadlineExceeded) {
					t.Errorf("left: %v", left) // what may still get ready is there for the next call
				}
				c.must(p.Close())
			})
		})
	}
}

// A claim beyond the profile's number is refused, and one that is there is not.
func TestMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		profile := rightProfile()
		profile.Max = 1
		p := c.provider(profile)
		_, err := p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		synctest.Wait()
		_, err = p.Claim(t.Context(), claimOf("hc-2"))
		wantCode(t, "one too many", err, fault.SandboxCapacity)
		wantCode(t, "room for one too many", p.Room(t.Context(), claimOf("hc-2")), fault.SandboxCapacity)
		c.must(p.Room(t.Context(), claimOf("hc-1")))
		_, err = p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		c.must(p.Release(t.Context(), "hc-1"))
		c.must(p.Room(t.Context(), claimOf("hc-2")))
		_, err = p.Claim(t.Context(), claimOf("hc-2"))
		c.must(err)
		c.must(p.Close())
	})
}

// Claims at the same moment share the places that are left.
func TestMaxAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		profile := rightProfile()
		profile.Max = 3
		p := c.provider(profile)
		got := make(chan error, 10)
		for i := range cap(got) {
			go func() {
				_, err := p.Claim(t.Context(), claimOf(fmt.Sprintf("hc-%d", i)))
				got <- err
			}()
		}
		given := 0
		for range cap(got) {
			if err := <-got; err == nil {
				given++
			} else {
				wantCode(t, "one too many", err, fault.SandboxCapacity)
			}
		}
		if left := c.claims(); given != 3 || len(left) != 3 {
			t.Errorf("%d given, left: %v", given, left)
		}
		c.must(p.Release(t.Context(), c.claims()[0]))
		synctest.Wait()
		_, err := p.Claim(t.Context(), claimOf("hc-10"))
		c.must(err)
		c.must(p.Close())
	})
}

// A cache that has not been filled yet, or that no watch tells of anything, does not make a
// profile larger.
func TestMaxBehindACacheThatKnowsNothing(t *testing.T) {
	for name, deaf := range map[string]bool{"not filled": false, "told nothing": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.custom.PrependWatchReactor("sandboxclaims", func(kubetesting.Action) (bool, watch.Interface, error) { return deaf, watch.NewFake(), nil })
				c.custom.PrependReactor("list", "sandboxclaims", func(a kubetesting.Action) (bool, runtime.Object, error) {
					action, ok := a.(kubetesting.ListActionImpl)
					return !deaf && ok && action.ListOptions.ResourceVersion != "", nil, apierrors.NewInternalError(errors.New("etcd")) // the informer's
				})
				profile := rightProfile()
				profile.Max = 2
				p := c.provider(profile)
				maker := p
				if !deaf { // what another replica made is in no memory of this one
					maker = c.provider(profile)
					defer func() { c.must(maker.Close()) }()
				}
				for i := range 2 {
					_, err := maker.Claim(t.Context(), claimOf(fmt.Sprintf("hc-%d", i)))
					c.must(err)
				}
				_, err := p.Claim(t.Context(), claimOf("hc-2"))
				wantCode(t, "one too many", err, fault.SandboxCapacity)
				c.must(p.Release(t.Context(), "hc-0"))
				_, err = p.Claim(t.Context(), claimOf("hc-2"))
				c.must(err)
				if left := c.claims(); len(left) != 2 {
					t.Errorf("left: %v", left)
				}
				if n := len(p.making.notSeen("workers")); deaf && n != 2 {
					t.Errorf("%d claims are remembered that no watch tells of, want those that are there", n)
				}
				if !deaf && p.caches.claims.HasSynced() {
					t.Error("the cache was filled: nothing was tried")
				}
				c.must(p.Close())
			})
		})
	}
}

// Without the API what was given is given again, and nothing else is.
func TestTheAPIIsAway(t *testing.T) {
	for name, failure := range map[string]error{
		"too many requests": apierrors.NewTooManyRequests("later", 1),
		"internal error":    apierrors.NewInternalError(errors.New("etcd")),
		"timeout":           apierrors.NewServerTimeout(claimResource.GroupResource(), "get", 1),
		"no connection":     &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"no rights for now": apierrors.NewUnauthorized("token"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				p := c.provider()
				in, err := p.Claim(t.Context(), claimOf("hc-1"))
				c.must(err)
				c.set(func() { c.fail = failure })
				again, err := p.Claim(t.Context(), claimOf("hc-1"))
				if err != nil || again != in {
					t.Errorf("what was given: %+v, %v", again, err)
				}
				if alive, err := p.Alive(t.Context(), "hc-1", in.UID); err != nil || !alive {
					t.Errorf("alive: %v, %v", alive, err)
				}
				_, err = p.Alive(t.Context(), "hc-1", "pod-9")
				wantCode(t, "another instance", err, fault.SandboxCapacity)
				start := time.Now()
				_, err = p.Claim(t.Context(), claimOf("hc-2"))
				wantCode(t, "a new claim", err, fault.SandboxCapacity)
				if waited := time.Since(start); waited > 2*awayPatience {
					t.Errorf("it waited %v", waited)
				}
				wantCode(t, "a release", p.Release(t.Context(), "hc-1"), fault.DependencyUnavailable)
				_, err = p.List(t.Context())
				wantCode(t, "a list", err, fault.DependencyUnavailable)
				c.set(func() { c.fail = nil })
				_, err = p.Claim(t.Context(), claimOf("hc-2"))
				c.must(err)
				c.must(p.Close())
			})
		})
	}
}

// A create whose answer is lost has made the claim, and no second one is made.
func TestALostCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		lost := true
		c.custom.PrependReactor("create", "*", func(a kubetesting.Action) (bool, runtime.Object, error) {
			if !lost {
				return false, nil, nil
			}
			lost = false
			_, _, err := c.create(a)
			c.must(err)
			return true, nil, context.DeadlineExceeded
		})
		in, err := p.Claim(ctx, claimOf("hc-1"))
		if err != nil || in.UID != "pod-1" || c.made != 1 {
			t.Errorf("%+v, %v, %d made", in, err, c.made)
		}
		c.must(p.Close())
	})
}

// A claim of that name that another installation made is neither used nor touched.
func TestSomebodyElsesClaim(t *testing.T) {
	for name, change := range map[string]func(*extensions.SandboxClaim){
		"another environment": func(c *extensions.SandboxClaim) { c.Labels[environmentLabel] = "0123" },
		"no label":            func(c *extensions.SandboxClaim) { c.Labels = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.answer = func(w *made) { change(w.claim) }
			p := c.provider()
			_, _ = p.api.create(t.Context(), "hc-1", "workers", time.Now().Add(time.Hour))
			_, err := p.Claim(t.Context(), claimOf("hc-1"))
			wantCode(t, name, err, fault.WorkerMismatch)
			c.must(p.Release(t.Context(), "hc-1"))
			if left := c.claims(); !slices.Equal(left, []string{"hc-1"}) {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// The operator has given the profile another pool, or put another profile of the harness
// first: a claim of before is given back, and the next generation of the lease has one
// that is right. One that is ending already is waited for.
func TestAClaimOfThePoolOfBefore(t *testing.T) {
	for name, ending := range map[string]bool{"it stands": false, "it is ending": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				before := c.provider()
				_, err := before.Claim(t.Context(), claimOf("hc-1"))
				c.must(err)
				renamed := rightProfile()
				renamed.WarmPool = "others"
				p := c.provider(renamed)
				next := "hc-2"
				if ending {
					next = "hc-1"
					c.set(func() { c.keeps = true })
					claim, err := p.api.claim(t.Context(), "hc-1")
					c.must(err)
					c.must(p.api.delete(t.Context(), "hc-1", claim.UID))
					time.AfterFunc(time.Second, func() {
						c.sweep(claim.UID)
						c.must(c.custom.Tracker().Delete(claimResource, namespace, "hc-1"))
					})
				} else {
					_, err = p.Claim(t.Context(), claimOf("hc-1"))
					wantCode(t, "a claim of the pool of before", err, fault.SandboxEvicted)
					if left := c.claims(); len(left) != 0 {
						t.Errorf("left: %v", left)
					}
				}
				if in, err := p.Claim(t.Context(), claimOf(next)); err != nil || in.UID != "pod-2" {
					t.Errorf("the next one: %+v, %v", in, err)
				}
				if claim, err := p.api.claim(t.Context(), next); err != nil || claim.Spec.WarmPoolRef.Name != "others" {
					t.Errorf("%+v, %v", claim, err)
				}
				c.must(before.Close())
				c.must(p.Close())
			})
		})
	}
}

// What the quota plugin says when two claims are counted at once, and before it has counted
// at all, is no fault of ours: it is asked again, or told to come again.
func TestAQuotaThatIsBusy(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("resourcequotas"), "sandboxes", errors.New("the object has been modified"))
	unknown := apierrors.NewForbidden(claimResource.GroupResource(), "hc-1", errors.New("status unknown for quota: sandboxes, resources: count/sandboxclaims"))
	for name, row := range map[string]struct {
		err   error
		times int
		want  fault.Code
	}{
		"a moment":     {conflict, 3, ""},
		"all the time": {conflict, 1 << 20, fault.SandboxCapacity},
		"not counted":  {unknown, 1, fault.SandboxCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				p := c.provider()
				c.custom.PrependReactor("create", "sandboxclaims", func(kubetesting.Action) (bool, runtime.Object, error) {
					row.times--
					return row.times >= 0, nil, row.err
				})
				in, err := p.Claim(within(t, time.Minute), claimOf("hc-1"))
				if row.want != "" {
					wantCode(t, name, err, row.want)
				} else if err != nil || in.UID != "pod-1" {
					t.Errorf("%+v, %v", in, err)
				}
				c.must(p.Close())
			})
		})
	}
}

// A cache that says ready while the API server does not is not believed, and one that
// is told nothing holds nobody up.
func TestCachesDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		deaf := func(kubetesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil }
		c.custom.PrependWatchReactor("*", deaf)
		c.core.PrependWatchReactor("*", deaf)
		p := c.provider()
		c.answer = func(w *made) { w.pods[0].Status.Conditions[0].Status = corev1.ConditionFalse }
		go func() {
			time.Sleep(5 * time.Second) //nolint:forbidigo // in a synctest bubble
			c.pod("pool-1", func(pod *corev1.Pod) bool { pod.Status.Conditions[0].Status = corev1.ConditionTrue; return true })
		}()
		in, err := p.Claim(t.Context(), claimOf("hc-1"))
		if err != nil || in.UID != "pod-1" {
			t.Fatalf("%+v, %v", in, err)
		}
		// The pod is another one now, of the same name; nobody told the caches.
		c.pod("pool-1", func(pod *corev1.Pod) bool { pod.UID = "pod-2"; return true })
		if alive, err := p.Alive(t.Context(), "hc-1", "pod-1"); err != nil || alive {
			t.Errorf("alive: %v, %v", alive, err)
		}
		in, err = p.Claim(t.Context(), claimOf("hc-1"))
		if err != nil || in.UID != "pod-2" { // which the lease refuses: it is another instance
			t.Errorf("%+v, %v", in, err)
		}
		c.must(p.Close())
	})
}
