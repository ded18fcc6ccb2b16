package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// However a sandbox ends, it is told once, with the limit that ended it where there is
// one, and it is not alive.
func TestExits(t *testing.T) {
	terminated := func(reason string, code int32) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}}
			return true
		}
	}
	failed := func(reason, message string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
			return true
		}
	}
	for name, row := range map[string]struct {
		change func(*corev1.Pod) bool
		want   sandbox.Limit
	}{
		"deleted":        {func(*corev1.Pod) bool { return false }, ""},
		"being deleted":  {func(p *corev1.Pod) bool { now := metav1.Now(); p.DeletionTimestamp = &now; return true }, ""},
		"another pod":    {func(p *corev1.Pod) bool { p.UID = "pod-2"; return true }, ""},
		"killed":         {terminated("Error", 137), ""},
		"out of memory":  {terminated("OOMKilled", 137), sandbox.LimitMemory},
		"processor time": {terminated("Error", 152), sandbox.LimitCPU},
		"processes": {func(p *corev1.Pod) bool {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2, Message: "limit pids"}}
			return true
		}, sandbox.LimitPIDs},
		"a crash":         {terminated("Error", 2), ""},
		"its files":       {failed("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 64Mi. "), sandbox.LimitStorage},
		"its workspace":   {failed("Evicted", `Usage of EmptyDir volume "workspace" exceeds the limit "64Mi". `), sandbox.LimitStorage},
		"its container":   {failed("Evicted", "Container worker exceeded its local ephemeral storage limit \"64Mi\". "), sandbox.LimitStorage},
		"the node's disk": {failed("Evicted", "The node was low on resource: ephemeral-storage. "), ""},
		"active deadline": {failed("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"), sandbox.LimitLifetime},
		"the node":        {failed("NodeShutdown", "Pod was terminated in response to imminent node shutdown."), ""},
		"done":            {func(p *corev1.Pod) bool { p.Status.Phase = corev1.PodSucceeded; return true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				p := c.provider()
				in, err := p.Claim(t.Context(), claimOf("hc-1"))
				c.must(err)
				synctest.Wait()
				c.pod("pool-1", row.change)
				time.Sleep(reasonPatience) //nolint:forbidigo // synctest's clock: it passes at once
				synctest.Wait()
				select {
				case got := <-p.Exits():
					if got != (sandbox.Exit{ClaimName: "hc-1", UID: "pod-1", Limit: row.want}) {
						t.Errorf("%+v", got)
					}
				default:
					t.Error("nothing was told")
				}
				if alive, err := p.Alive(t.Context(), "hc-1", in.UID); err != nil || alive {
					t.Errorf("alive: %v, %v", alive, err)
				}
				c.must(p.Close())
				if more, open := <-p.Exits(); open {
					t.Errorf("told again: %+v", more)
				}
			})
		})
	}
}

// A sandbox whose time is over ended of it.
func TestTheLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		profile := rightProfile()
		profile.LifetimeSeconds = 60
		p := c.provider(profile)
		_, err := p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		time.Sleep(61 * time.Second) //nolint:forbidigo // in a synctest bubble
		claim, err := p.api.claim(t.Context(), "hc-1")
		c.must(err)
		c.must(p.api.delete(t.Context(), "hc-1", claim.UID)) // as the controller does
		synctest.Wait()
		if got := <-p.Exits(); got.Limit != sandbox.LimitLifetime {
			t.Errorf("%+v", got)
		}
		c.must(p.Close())
	})
}

// The controller ends a sandbox by its own clock, and the pod says by the API server's when
// it was told to: ours, and when we hear of it, decide nothing.
func TestWhatTheLifetimeEnded(t *testing.T) {
	for name, row := range map[string]struct {
		says        bool          // whether the pod says when it was told to end
		told, heard time.Duration // after the time was over
		want        sandbox.Limit
	}{
		"at its time":              {true, 0, time.Second, sandbox.LimitLifetime},
		"by a clock that is ahead": {true, -3 * time.Second, -2 * time.Second, sandbox.LimitLifetime},
		"long before":              {true, -time.Minute, -time.Minute, ""},
		"long before, heard late":  {true, -time.Minute, time.Hour, ""},
		"it does not say":          {false, 0, 0, sandbox.LimitLifetime},
		"it does not say, early":   {false, 0, -time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newExits(slog.New(slog.DiscardHandler))
				over := time.Now().Add(-row.heard)
				e.give(sandbox.Instance{ClaimName: "hc-1", UID: "pod-1"}, over)
				pod := rightPod("pool-1", "sandbox-1", "pod-1", "claim-1")
				if row.says {
					grace := int64(10)
					told := metav1.NewTime(over.Add(row.told + 10*time.Second))
					pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &told, &grace
				}
				e.ended(pod, true)
				if got := <-e.told; got.Limit != row.want {
					t.Errorf("%+v", got)
				}
				e.close()
			})
		})
	}
}

// A pod that was warm when the caches last heard of it, and was given meanwhile, ends in a
// list that was made anew: what they know of it says nobody's, and it is told all the same.
func TestTheEndOfAPodThatWasWarm(t *testing.T) {
	for name, late := range map[string]bool{"given before": false, "given after": true} {
		e := newExits(slog.New(slog.DiscardHandler))
		in := sandbox.Instance{ClaimName: "hc-1", UID: "pod-1"}
		if !late {
			e.give(in, time.Time{})
		}
		warm := rightPod("pool-1", "sandbox-1", "pod-1", "")
		warm.Labels = nil
		(&caches{listeners: listeners{bell: newBell(), exits: e}}).deleted(cache.DeletedFinalStateUnknown{Key: "sandboxes/pool-1", Obj: warm})
		if late {
			e.give(in, time.Time{})
		}
		select {
		case got := <-e.told:
			if got != (sandbox.Exit{ClaimName: "hc-1", UID: "pod-1"}) {
				t.Errorf("%s: %+v", name, got)
			}
		default:
			t.Errorf("%s: nothing was told", name)
		}
		e.close()
	}
}

// What ended while the claim was being answered is told all the same.
func TestAnEndBeforeItWasGiven(t *testing.T) {
	e := newExits(newCluster(t).provider().cfg.Logger)
	pod := rightPod("pool-1", "sandbox-1", "pod-1", "claim-1")
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled"}}
	e.ended(pod, true)
	e.ended(pod, true)
	e.give(sandbox.Instance{ClaimName: "hc-1", UID: "pod-1"}, time.Time{})
	if got := <-e.told; got.Limit != sandbox.LimitMemory || len(e.told) != 0 {
		t.Errorf("%+v", got)
	}
	for i := range 2 * keptGone {
		e.ended(rightPod("p", "s", types.UID(fmt.Sprint(i)), "c"), true)
	}
	if len(e.gone) != keptGone || len(e.order) != keptGone {
		t.Errorf("%d remembered", len(e.gone))
	}
}

// Release ends this very claim and returns when nothing is left of it; it is told of no
// exit, and another installation's is left alone.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		in, err := p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		c.set(func() { c.keeps = true }) // the node takes its time
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := p.Release(ctx, "hc-1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a release without an end: %v", err)
		}
		if alive, err := p.Alive(t.Context(), "hc-1", in.UID); err != nil || alive {
			t.Errorf("a released claim is alive: %v, %v", alive, err)
		}
		if list, err := p.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("%v, %v", list, err)
		}
		c.set(func() { c.keeps = false })
		c.must(p.Release(t.Context(), "hc-1"))
		c.must(p.Release(t.Context(), "hc-1"))
		if left := c.claims(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		again, err := p.Claim(t.Context(), claimOf("hc-1"))
		if err != nil || again.UID == in.UID || again.ClaimUID == in.ClaimUID {
			t.Errorf("the name used again: %+v, %v", again, err)
		}
		c.must(p.Close())
		for exit := range p.Exits() {
			t.Errorf("told: %+v", exit)
		}
	})
}

// A claim that somebody deletes in the background is gone at once, and its pod runs on for
// its grace: until it has ended nothing is released, by whichever replica, and no other
// claim has the name.
func TestAClaimThatIsDeletedByHand(t *testing.T) {
	for name, row := range map[string]struct {
		replica string
		again   bool // the name is claimed again, and not released
	}{
		"released by who gave it":         {"gave", false},
		"released by who watched":         {"watched", false},
		"released by who started since":   {"started", false},
		"released by who is told nothing": {"deaf", false},
		"claimed again":                   {"gave", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				deaf := row.replica == "deaf"
				c.custom.PrependWatchReactor("sandboxclaims", func(kubetesting.Action) (bool, watch.Interface, error) { return deaf, watch.NewFake(), nil })
				p := c.provider()
				watched := c.provider()
				_, err := p.Claim(t.Context(), claimOf("hc-1"))
				c.must(err)
				synctest.Wait()
				c.deleteByHand("hc-1", row.replica != "started")
				if row.replica == "started" {
					since := c.provider()
					time.AfterFunc(100*time.Millisecond, func() { c.collect("pool-1") })
					defer func() { c.must(since.Close()) }()
					p, watched = since, p
				}
				if row.replica == "watched" {
					p, watched = watched, p
				}
				synctest.Wait()
				end := func(ctx context.Context) error {
					if row.again {
						_, err := p.Claim(ctx, claimOf("hc-1"))
						return err
					}
					return p.Release(ctx, "hc-1")
				}
				if err := end(within(t, 2*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("while the pod runs: %v", err)
				}
				c.pod("pool-1", func(*corev1.Pod) bool { return false })
				c.must(end(t.Context()))
				l := c.countLists()
				c.must(end(t.Context()))
				if n := l.now.Load(); n != 0 && !row.again {
					t.Errorf("%d lists for what is known to be gone", n)
				}
				c.must(p.Close())
				c.must(watched.Close())
			})
		})
	}
}

// What is remembered of names is bounded, those that were heard of last are, and what has
// ended does not come back by an event that is late.
func TestTraces(t *testing.T) {
	tr := newTraces()
	tr.note("hc-0", "first")
	for i := range keptTraces {
		tr.note("hc-0", "first")
		tr.note(fmt.Sprint("hc-", i+1), "uid")
	}
	if len(tr.left) != keptTraces || len(tr.order) != keptTraces {
		t.Errorf("%d names, %d in order", len(tr.left), len(tr.order))
	}
	if _, known := tr.of("hc-1"); known {
		t.Error("the oldest is remembered")
	}
	tr.note("hc-0", "second")
	tr.end("hc-0", "first")
	tr.note("hc-0", "first")
	if uids, known := tr.of("hc-0"); !known || !slices.Equal(uids, []types.UID{"second"}) {
		t.Errorf("%v, %v", uids, known)
	}
	tr.end("hc-0", "second")
	if uids, known := tr.of("hc-0"); !known || len(uids) != 0 {
		t.Errorf("%v, %v", uids, known)
	}
}

// The claims outlive the provider: another replica, or the same one started again, has
// them, and knows them by name.
func TestCloseEndsNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		first := c.provider()
		in, err := first.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		c.must(first.Close())
		second := c.provider()
		list, err := second.List(t.Context())
		if err != nil || len(list) != 1 || list[0].ClaimName != "hc-1" || list[0].UID != in.UID || list[0].ID != in.ID {
			t.Errorf("%+v, %v", list, err)
		}
		if alive, err := second.Alive(t.Context(), "hc-1", in.UID); err != nil || !alive {
			t.Errorf("alive: %v, %v", alive, err)
		}
		again, err := second.Claim(t.Context(), claimOf("hc-1"))
		if err != nil || again != in {
			t.Errorf("%+v, %v", again, err)
		}
		c.pod("pool-1", func(*corev1.Pod) bool { return false })
		list, err = second.List(t.Context())
		if err != nil || len(list) != 1 || list[0].UID != "" { // to be released by name
			t.Errorf("%+v, %v", list, err)
		}
		c.must(second.Close())
	})
}

// An evicted pod is told to end, and says only then that it was evicted, and why.
func TestTheReasonComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.provider()
		in, err := p.Claim(t.Context(), claimOf("hc-1"))
		c.must(err)
		synctest.Wait()
		c.pod("pool-1", func(pod *corev1.Pod) bool {
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
			return true
		})
		synctest.Wait()
		if alive, err := p.Alive(t.Context(), "hc-1", in.UID); err != nil || alive {
			t.Errorf("alive: %v, %v", alive, err)
		}
		select {
		case got := <-p.Exits():
			t.Fatalf("told without a reason: %+v", got)
		default:
		}
		time.Sleep(reasonPatience / 2) //nolint:forbidigo // synctest's clock: it passes at once
		c.pod("pool-1", func(pod *corev1.Pod) bool {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", `Usage of EmptyDir volume "workspace" exceeds the limit "32Mi". `
			return true
		})
		synctest.Wait()
		if got := <-p.Exits(); got.Limit != sandbox.LimitStorage {
			t.Errorf("%+v", got)
		}
		time.Sleep(2 * reasonPatience) //nolint:forbidigo // synctest's clock: it passes at once
		c.must(p.Close())
		if more, open := <-p.Exits(); open {
			t.Errorf("told again: %+v", more)
		}
	})
}
