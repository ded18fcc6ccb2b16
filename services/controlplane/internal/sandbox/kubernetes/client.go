package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/pkg/fault"
)

const (
	// callTimeout bounds one request.
	callTimeout = 5 * time.Second
	// environmentLabel is of every claim that this project makes, with the digest of
	// its installation. What lacks it is somebody else's.
	environmentLabel = "cofferdam.dev/environment"
	// claimUIDLabel is what the controller sets on what answers to a claim.
	claimUIDLabel = extensions.SandboxIDLabel
)

var (
	claimResource   = extensions.GroupVersion.WithResource("sandboxclaims")
	sandboxResource = agents.GroupVersion.WithResource("sandboxes")
)

// client makes the requests.
type client struct {
	API
	namespace   string
	environment string
}

// ours reports whether a claim was made by this installation.
func (c client) ours(claim *extensions.SandboxClaim) bool {
	return claim.Labels[environmentLabel] == c.environment
}

func (c client) selector() string { return environmentLabel + "=" + c.environment }

func (c client) create(ctx context.Context, name, pool string, until time.Time) (*extensions.SandboxClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	shutdown := metav1.NewTime(until)
	claim := &extensions.SandboxClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: extensions.GroupVersion.String(), Kind: extensions.SandboxClaimKind},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace, Labels: map[string]string{environmentLabel: c.environment}},
		Spec: extensions.SandboxClaimSpec{
			WarmPoolRef: extensions.SandboxWarmPoolRef{Name: pool},
			// In the foreground, so that a claim that is gone has left nothing.
			Lifecycle: &extensions.Lifecycle{ShutdownTime: &shutdown, ShutdownPolicy: extensions.ShutdownPolicyDeleteForeground},
		},
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(claim)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(raw, "status")
	out, err := c.Custom.Resource(claimResource).Namespace(c.namespace).Create(ctx, &unstructured.Unstructured{Object: raw}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return typed[extensions.SandboxClaim](out)
}

func (c client) claim(ctx context.Context, name string) (*extensions.SandboxClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := c.Custom.Resource(claimResource).Namespace(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return typed[extensions.SandboxClaim](out)
}

// delete ends the claim of that UID, and in the foreground: it stays until sandbox and
// pod are gone.
func (c client) delete(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	foreground := metav1.DeletePropagationForeground
	return c.Custom.Resource(claimResource).Namespace(c.namespace).Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &foreground,
	})
}

func (c client) claims(ctx context.Context) ([]*extensions.SandboxClaim, error) {
	return list[extensions.SandboxClaim](ctx, c, claimResource, c.selector(), "")
}

// sandboxes gives those that a label selector finds, as they are now or at least as
// they were at a resource version: see atLeast.
func (c client) sandboxes(ctx context.Context, selector, since string) ([]*agents.Sandbox, error) {
	return list[agents.Sandbox](ctx, c, sandboxResource, selector, since)
}

func (c client) sandbox(ctx context.Context, name string) (*agents.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := c.Custom.Resource(sandboxResource).Namespace(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return typed[agents.Sandbox](out)
}

func (c client) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.Core.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
}

// atLeast are the options of a list. One of what is there now waits in the API server
// until its own cache has heard from etcd, for up to 100 ms after any write; one that
// need not be newer than a version is answered at once.
func atLeast(selector, since string) metav1.ListOptions {
	o := metav1.ListOptions{LabelSelector: selector, ResourceVersion: since}
	if since != "" {
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	return o
}

func (c client) pods(ctx context.Context, selector, since string) ([]*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := c.Core.CoreV1().Pods(c.namespace).List(ctx, atLeast(selector, since))
	if err != nil {
		return nil, err
	}
	out := make([]*corev1.Pod, len(got.Items))
	for i := range got.Items {
		out[i] = &got.Items[i]
	}
	return out, nil
}

func list[T any](ctx context.Context, c client, resource schema.GroupVersionResource, selector, since string) ([]*T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := c.Custom.Resource(resource).Namespace(c.namespace).List(ctx, atLeast(selector, since))
	if err != nil {
		return nil, err
	}
	out := make([]*T, len(got.Items))
	for i := range got.Items {
		if out[i], err = typed[T](&got.Items[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func typed[T any](u *unstructured.Unstructured) (*T, error) {
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return out, nil
}

// byClaim selects what answers to a claim.
func byClaim(uid types.UID) string {
	return labels.SelectorFromSet(labels.Set{claimUIDLabel: string(uid)}).String()
}

// away reports whether an error says nothing of what was asked for: nobody answered,
// or only that he cannot now.
func away(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		_, decided := errors.AsType[*fault.Error](err)
		_, seen := errors.AsType[verdict](err)
		return !decided && !seen
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err) ||
		status.Status().Code >= 500
}

// overQuota reports whether the namespace holds no more, or nobody has counted yet what it
// holds.
func overQuota(message string) bool {
	return strings.Contains(message, "exceeded quota") || strings.Contains(message, "status unknown for quota")
}
