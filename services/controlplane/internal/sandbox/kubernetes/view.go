package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/pkg/fault"
)

const ready = string(agents.SandboxConditionReady)

// verdict is what a view says, as opposed to an API server that says nothing.
type verdict string

func (v verdict) Error() string { return string(v) }

// What a view can say, beside that there is an answer.
const (
	errWaiting       = verdict("it is not ready yet")
	errUnschedulable = verdict("no node takes the pod")
	errEnding        = verdict("the claim is ending, or has ended")
	errMany          = verdict("more than one sandbox or pod answers to the claim")
	errOther         = verdict("what answers to the claim is not its own")
	errCold          = verdict("the warm pool is empty, and the profile allows no cold start")
	errQuota         = verdict("the quota of the namespace is used up")
	errOperator      = verdict("the cluster has not what the profile names")
	errStopped       = verdict("the pod has ended, or is ending")
	errPool          = verdict("the claim is of a pool that is not the profile's any more")
)

// view is what there is of one claim, as read at one time.
type view struct {
	claim     *extensions.SandboxClaim // nil where there is none of this UID
	sandboxes []*agents.Sandbox
	pods      []*corev1.Pod
}

// revisions of sandboxes and pods that a view need not be newer than; empty are those of
// now.
type revisions struct{ sandboxes, pods string }

// look reads what answers to a claim from the API server. Where the caches know of an
// answer, nothing that they know of is missed, of which there might be more than one;
// and the one that there is, is as it is now. Where they know of none, all is read as
// it is now, which takes longer.
func (p *Provider) look(ctx context.Context, name string, uid types.UID) (view, error) {
	since := p.caches.revisions() // before what is known by then
	known := p.caches.view(p.api.namespace+"/"+name, uid)
	if len(known.sandboxes) == 0 || len(known.pods) == 0 || since.sandboxes == "" || since.pods == "" {
		return p.lookNow(ctx, name, uid)
	}
	var v view
	now := newCurrent(p.api)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { v.claim, err = p.claimOf(gctx, name, uid); return err })
	g.Go(func() (err error) { v.pods, err = p.api.pods(gctx, byClaim(uid), since.pods); return err })
	g.Go(func() (err error) {
		v.sandboxes, err = p.api.sandboxes(gctx, byClaim(uid), since.sandboxes)
		return err
	})
	// One round of requests, and not two: what the lists will find is known.
	for _, s := range known.sandboxes {
		g.Go(func() error { _, err := now.sandbox(gctx, s); return err })
	}
	for _, pod := range known.pods {
		g.Go(func() error { _, err := now.pod(gctx, pod); return err })
	}
	if err := g.Wait(); apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return p.lookNow(ctx, name, uid) // another API server, which is behind, or one that was restored
	} else if err != nil {
		return v, err
	}
	if err := v.readBack(ctx, now); err != nil {
		return v, err
	}
	return v, p.addUnlabelled(ctx, &v, uid)
}

// current are objects as they are, each read once.
type current struct {
	api       client
	mu        sync.Mutex
	sandboxes map[types.UID]*agents.Sandbox // nil for one that is gone
	pods      map[types.UID]*corev1.Pod
}

func newCurrent(api client) *current {
	return &current{api: api, sandboxes: map[types.UID]*agents.Sandbox{}, pods: map[types.UID]*corev1.Pod{}}
}

func (c *current) sandbox(ctx context.Context, s *agents.Sandbox) (*agents.Sandbox, error) {
	return once(ctx, c, c.sandboxes, s, c.api.sandbox)
}

func (c *current) pod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return once(ctx, c, c.pods, pod, c.api.pod)
}

// once reads an object, unless that was done: nil where it is gone, or another one has its
// name.
func once[T any, O interface {
	*T
	metav1.Object
}](ctx context.Context, c *current, had map[types.UID]O, o O, get func(context.Context, string) (O, error)) (O, error) {
	c.mu.Lock()
	now, read := had[o.GetUID()]
	c.mu.Unlock()
	if read {
		return now, nil
	}
	now, err := get(ctx, o.GetName())
	if err != nil || now.GetUID() != o.GetUID() {
		now = nil
	}
	if err := ignoreGone(err); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	had[o.GetUID()] = now
	return now, nil
}

// readBack has what the lists found as it is: a list may be older than an object.
func (v *view) readBack(ctx context.Context, now *current) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, s := range v.sandboxes {
		g.Go(func() (err error) { v.sandboxes[i], err = now.sandbox(ctx, s); return err })
	}
	for i, pod := range v.pods {
		g.Go(func() (err error) { v.pods[i], err = now.pod(ctx, pod); return err })
	}
	err := g.Wait()
	v.sandboxes = slices.DeleteFunc(v.sandboxes, func(s *agents.Sandbox) bool { return s == nil })
	v.pods = slices.DeleteFunc(v.pods, func(pod *corev1.Pod) bool { return pod == nil })
	return err
}

// lookNow reads all that answers to a claim as it is now. What the caches know beside it
// can only be more, and so only make it a refusal.
func (p *Provider) lookNow(ctx context.Context, name string, uid types.UID) (v view, err error) {
	if v.claim, err = p.claimOf(ctx, name, uid); err != nil {
		return v, err
	}
	// Pods before sandboxes: a pod carries the label only after its sandbox was adopted,
	// so that whoever sees the pod sees the sandbox.
	if v.pods, err = p.api.pods(ctx, byClaim(uid), ""); err != nil {
		return v, err
	}
	if v.sandboxes, err = p.api.sandboxes(ctx, byClaim(uid), ""); err != nil {
		return v, err
	}
	return v, p.addUnlabelled(ctx, &v, uid)
}

// claimOf gives the claim of that UID, nil where there is none.
func (p *Provider) claimOf(ctx context.Context, name string, uid types.UID) (*extensions.SandboxClaim, error) {
	claim, err := p.api.claim(ctx, name)
	if err != nil || claim.UID != uid {
		return nil, ignoreGone(err)
	}
	return claim, nil
}

// addUnlabelled finds what a claim or its sandbox controls and what does not carry the
// label: the caches tell of it, and the API server decides.
func (p *Provider) addUnlabelled(ctx context.Context, v *view, uid types.UID) error {
	more := p.caches.controlled(uid)
	for _, s := range v.sandboxes {
		more = append(more, p.caches.controlled(s.UID)...)
	}
	for _, o := range more {
		if o.GetLabels()[claimUIDLabel] == string(uid) {
			continue // it is in the lists, or gone
		}
		if err := p.add(ctx, v, o); err != nil {
			return err
		}
	}
	return nil
}

func (p *Provider) add(ctx context.Context, v *view, o metav1.Object) error {
	if _, pod := o.(*corev1.Pod); pod {
		now, err := p.api.pod(ctx, o.GetName())
		if err == nil && now.UID == o.GetUID() && !hasPod(v.pods, now.UID) {
			v.pods = append(v.pods, now)
		}
		return ignoreGone(err)
	}
	now, err := p.api.sandbox(ctx, o.GetName())
	if err == nil && now.UID == o.GetUID() && !hasSandbox(v.sandboxes, now.UID) {
		v.sandboxes = append(v.sandboxes, now)
	}
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func hasPod(list []*corev1.Pod, uid types.UID) bool {
	for _, o := range list {
		if o.UID == uid {
			return true
		}
	}
	return false
}

func hasSandbox(list []*agents.Sandbox, uid types.UID) bool {
	for _, o := range list {
		if o.UID == uid {
			return true
		}
	}
	return false
}

// answer is the one sandbox and the one pod of a claim.
type answer struct {
	claim   *extensions.SandboxClaim
	sandbox *agents.Sandbox
	pod     *corev1.Pod
}

// answer gives what answers to the claim, if it is ready. It decides on the view alone.
func (v view) answer(cold bool) (answer, error) {
	a, err := v.single()
	if err != nil {
		return a, err
	}
	if err := a.claimCondition(); err != nil {
		return a, err
	}
	switch {
	case a.sandbox == nil:
		return a, errWaiting
	case !cold && a.sandbox.Labels[agents.SandboxLaunchTypeLabel] == agents.SandboxLaunchTypeCold:
		return a, errCold
	case a.pod == nil, a.claim.Status.SandboxStatus.Name != a.sandbox.Name:
		return a, errors.Join(errWaiting, a.sandboxReason())
	case ended(a.pod):
		return a, errStopped
	case unschedulable(a.pod):
		return a, errUnschedulable
	case a.pod.Status.Phase != corev1.PodRunning, !podReady(a.pod), a.pod.Status.PodIP == "", !meta.IsStatusConditionTrue(a.claim.Status.Conditions, ready):
		return a, errors.Join(errWaiting, podReason(a.pod))
	}
	return a, nil
}

// single gives the one of each kind, or none yet, and refuses more and others.
func (v view) single() (answer, error) {
	a := answer{claim: v.claim}
	if v.claim == nil || v.claim.DeletionTimestamp != nil {
		return a, errEnding
	}
	if len(v.sandboxes) > 1 || len(v.pods) > 1 {
		return a, fmt.Errorf("%w: %d sandboxes and %d pods", errMany, len(v.sandboxes), len(v.pods))
	}
	if len(v.sandboxes) == 1 {
		a.sandbox = v.sandboxes[0]
		if !controls(v.claim.UID, extensions.SandboxClaimKind, a.sandbox) {
			return a, errOther
		}
		if a.sandbox.DeletionTimestamp != nil {
			return a, errStopped
		}
	}
	if len(v.pods) == 1 {
		if a.sandbox == nil { // a pod is judged by its sandbox; one without is given to nobody
			return a, errWaiting
		}
		a.pod = v.pods[0]
		if !controls(a.sandbox.UID, agents.SandboxKind, a.pod) {
			return a, errOther
		}
	}
	return a, nil
}

// controls reports whether the object has that one controller, and no other owner.
func controls(uid types.UID, kind string, o metav1.Object) bool {
	owners := o.GetOwnerReferences()
	return len(owners) == 1 && owners[0].Controller != nil && *owners[0].Controller && owners[0].UID == uid && owners[0].Kind == kind
}

// claimCondition says what the controller will not get over by itself.
func (a answer) claimCondition() error {
	c := meta.FindStatusCondition(a.claim.Status.Conditions, ready)
	if c == nil || c.Status == metav1.ConditionTrue {
		return nil
	}
	switch c.Reason {
	case extensions.ClaimExpiredReason, agents.SandboxReasonExpired:
		return errEnding
	case agents.SandboxReasonMultiplePods:
		return errMany
	case "WarmPoolNotFound", "TemplateNotFound", "InvalidMetadata", "EnvVarsInjectionRejected", "VolumeClaimTemplatesError":
		return fmt.Errorf("%w: %s: %s", errOperator, c.Reason, c.Message)
	}
	if overQuota(c.Message) {
		return errQuota
	}
	return nil
}

func (a answer) sandboxReason() error {
	if c := meta.FindStatusCondition(a.sandbox.Status.Conditions, ready); c != nil && c.Status != metav1.ConditionTrue {
		return fmt.Errorf("%s: %s", c.Reason, c.Message)
	}
	return nil
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func unschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// podReason is for the log: why a container does not start.
func podReason(pod *corev1.Pod) error {
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Reason != "" {
			return fmt.Errorf("container %s: %s", s.Name, w.Reason)
		}
	}
	return nil
}

// refused is how a view that is no answer is told. Waiting is told by who waited.
func refused(err error, op string) error {
	switch {
	case errors.Is(err, errCold), errors.Is(err, errQuota), errors.Is(err, errUnschedulable):
		return fault.Wrap(err, fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
	case errors.Is(err, errMany), errors.Is(err, errOther), errors.Is(err, errEnding), errors.Is(err, errPool):
		return fault.Wrap(err, fault.SandboxEvicted, op)
	case errors.Is(err, errOperator), errors.Is(err, errProfile):
		return fault.Wrap(err, fault.WorkerMismatch, op)
	default:
		return fault.Wrap(err, fault.SandboxNotReady, op)
	}
}

// roomAgain is how long to wait for room. Nobody knows when a pool has refilled; it
// keeps those who ask from asking all the time.
const roomAgain = 5 * time.Second
