package kubernetes

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// keptGone is of how many pods it is remembered that they have ended, for a claim that
// is being answered at that moment.
const keptGone = 1024

// reasonPatience is how long a pod may take to say why its container has ended.
const reasonPatience = 5 * time.Second

// clockSkew is by how much the clocks of the sandbox controller, of the API server and of
// this process may differ.
const clockSkew = 5 * time.Second

// given is an instance that this process gave, until it has ended or was released.
type given struct {
	sandbox.Instance
	shutdown time.Time
}

// over reports whether a pod ended when its time was over: when it was told to, by the API
// server's clock, or else now.
func (g given) over(pod *corev1.Pod) bool {
	if g.shutdown.IsZero() {
		return false
	}
	at := time.Now()
	if told := pod.DeletionTimestamp; told != nil {
		at = told.Time
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			at = at.Add(-time.Duration(*grace) * time.Second)
		}
	}
	return !at.Before(g.shutdown.Add(-clockSkew))
}

// exits remembers what was given and tells once when it is gone.
type exits struct {
	told   chan sandbox.Exit
	logger *slog.Logger

	mu     sync.Mutex
	closed bool
	byUID  map[types.UID]given // by pod
	claims map[string]types.UID
	gone   map[types.UID]sandbox.Limit
	order  []types.UID
	// waiting are pods of which a container has ended, and that have not said why.
	waiting map[types.UID]*time.Timer
}

func newExits(logger *slog.Logger) *exits {
	return &exits{
		told: make(chan sandbox.Exit, exitsBuffer), logger: logger,
		byUID: map[types.UID]given{}, claims: map[string]types.UID{}, gone: map[types.UID]sandbox.Limit{},
		waiting: map[types.UID]*time.Timer{},
	}
}

// give remembers an instance. One that ended while it was looked at is told at once.
func (e *exits) give(in sandbox.Instance, shutdown time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	uid := types.UID(in.UID)
	if old, ok := e.claims[in.ClaimName]; ok && old != uid {
		delete(e.byUID, old)
	}
	e.byUID[uid], e.claims[in.ClaimName] = given{in, shutdown}, uid
	if limit, ended := e.gone[uid]; ended {
		e.tellLocked(uid, limit)
	}
}

// of gives what was given to a claim and has not ended, as far as is known.
func (e *exits) of(claimName string) (sandbox.Instance, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g, ok := e.byUID[e.claims[claimName]]
	return g.Instance, ok
}

// forget drops what was given to a claim: its end is asked for.
func (e *exits) forget(claimName string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byUID, e.claims[claimName])
	delete(e.claims, claimName)
}

// ended notes that a pod has ended, or is ending. final says that no more will be heard
// of it. What was last heard of it may be of when it was warm: whether it was given is known
// by its UID, and not by its label.
func (e *exits) ended(pod *corev1.Pod, final bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	limit := limitOf(pod)
	if g, ok := e.byUID[pod.UID]; ok && limit == "" && g.over(pod) {
		limit = sandbox.LimitLifetime
	}
	if limit == "" && !final && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
		e.awaitReasonLocked(pod.UID)
		return
	}
	e.concludeLocked(pod.UID, limit)
}

// awaitReasonLocked leaves a pod whose container has ended a while to say why: an evicted
// one is told to end first, and then that it was evicted.
func (e *exits) awaitReasonLocked(uid types.UID) {
	if e.closed || e.waiting[uid] != nil {
		return
	}
	e.waiting[uid] = time.AfterFunc(reasonPatience, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.waiting[uid] != nil {
			e.concludeLocked(uid, "")
		}
	})
}

// concludeLocked takes note of why a pod has ended, the first time.
func (e *exits) concludeLocked(uid types.UID, limit sandbox.Limit) {
	if timer := e.waiting[uid]; timer != nil {
		timer.Stop()
		delete(e.waiting, uid)
	}
	if _, twice := e.gone[uid]; !twice {
		e.gone[uid] = limit
		if e.order = append(e.order, uid); len(e.order) > keptGone {
			delete(e.gone, e.order[0])
			e.order = e.order[1:]
		}
	}
	e.tellLocked(uid, limit)
}

func (e *exits) tellLocked(uid types.UID, limit sandbox.Limit) {
	g, ok := e.byUID[uid]
	if !ok || e.closed {
		return
	}
	delete(e.byUID, uid)
	delete(e.claims, g.ClaimName)
	e.logger.Info("sandbox went away", "instance", g.UID, "limit", string(limit))
	select {
	case e.told <- sandbox.Exit{ClaimName: g.ClaimName, UID: g.UID, Limit: limit}:
	default: // who reads too slowly finds out by Alive
	}
}

func (e *exits) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		for uid, timer := range e.waiting {
			timer.Stop()
			delete(e.waiting, uid)
		}
		close(e.told)
	}
}

// ended reports whether a pod does not run any more, or not as a whole, or is about to
// end: a container that is dead stays dead.
func ended(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Terminated != nil {
			return true
		}
	}
	return false
}

const (
	// sigxcpuExit is the exit code of a container that SIGXCPU ended.
	sigxcpuExit = 128 + 24
	// pidsWords are the last words of a worker that could have no more threads.
	pidsWords = "limit pids"
)

// limitOf says which limit ended a pod, as far as its status tells. That it had too many
// processes the kubelet does not say, but its worker does. A hosted program could say it
// of its own container, which is no more than to end it by having too many.
func limitOf(pod *corev1.Pod) sandbox.Limit {
	for _, s := range pod.Status.ContainerStatuses {
		switch t := s.State.Terminated; {
		case t == nil:
		case t.Reason == "OOMKilled":
			return sandbox.LimitMemory
		case t.ExitCode == sigxcpuExit:
			return sandbox.LimitCPU
		case t.Message == pidsWords:
			return sandbox.LimitPIDs
		}
	}
	switch message := pod.Status.Message; {
	case pod.Status.Reason == "DeadlineExceeded":
		return sandbox.LimitLifetime
	case pod.Status.Reason != "Evicted":
		return ""
	// The kubelet's words for what the pod itself used up. A node that is low on
	// something evicts as well, and that is nobody's limit.
	case strings.Contains(message, "exceeds the total limit of containers"), strings.Contains(message, "exceeds the limit"),
		strings.Contains(message, "exceeded its local ephemeral storage limit"):
		return sandbox.LimitStorage
	}
	return ""
}
