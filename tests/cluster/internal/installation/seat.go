//go:build cluster

package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/internal/procs"
)

// Seat is where a binding works: what its record says, and the objects of the cluster
// that this names.
type Seat struct {
	Binding    apiclient.Binding
	Claim      types.UID
	Sandbox    types.UID
	Pod        *corev1.Pod
	Generation uint32
}

// Seat waits until a binding has a sandbox, and gives it. That claim, sandbox and pod
// are those of the record, and belong to each other, is seen in the cluster.
func (i *Installation) Seat(t testing.TB, bindingID string) Seat {
	t.Helper()
	s, err := i.SeatOf(t.Context(), i.Operator(t), bindingID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// SeatOf is Seat with a client that the caller has, for goroutines.
func (i *Installation) SeatOf(ctx context.Context, operator *apiclient.Client, bindingID string) (s Seat, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Patience)
	defer cancel()
	for {
		if s, err = i.seat(ctx, operator, bindingID); err == nil {
			return s, nil
		}
		if !sleep(ctx) {
			return s, fmt.Errorf("the seat of %s: %w", bindingID, err)
		}
	}
}

func (i *Installation) seat(ctx context.Context, operator *apiclient.Client, bindingID string) (Seat, error) {
	b, err := operator.Binding(ctx, bindingID)
	if err != nil {
		return Seat{}, err
	}
	if b.Lease == nil || b.Lease.InstanceUID == "" {
		return Seat{}, errors.New("it has none")
	}
	claim, err := i.Cluster.Dynamic.Resource(kube.Claims).Namespace(Sandboxes).Get(ctx, b.Lease.ClaimName, metav1.GetOptions{})
	if err != nil {
		return Seat{}, err
	}
	s := Seat{Binding: b, Claim: claim.GetUID(), Generation: b.Generation}
	boxes, err := i.Cluster.Dynamic.Resource(kube.Sandboxes).Namespace(Sandboxes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	pods, err := i.Cluster.Client.CoreV1().Pods(Sandboxes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, err
	}
	for _, box := range boxes.Items {
		if !ownedBy(box.GetOwnerReferences(), s.Claim) {
			continue
		}
		if s.Sandbox != "" {
			return s, fmt.Errorf("two sandboxes belong to the claim %s", claim.GetName())
		}
		s.Sandbox = box.GetUID()
	}
	for n := range pods.Items {
		if !ownedBy(pods.Items[n].OwnerReferences, s.Sandbox) {
			continue
		}
		if s.Pod != nil {
			return s, fmt.Errorf("two pods belong to the sandbox of the claim %s", claim.GetName())
		}
		s.Pod = &pods.Items[n]
	}
	if s.Pod == nil || string(s.Claim) != b.Lease.ClaimUID || string(s.Sandbox) != b.Lease.SandboxUID || string(s.Pod.UID) != b.Lease.InstanceUID {
		return s, fmt.Errorf("the record has claim %s, sandbox %s and pod %s, the cluster %s, %s and %v", b.Lease.ClaimUID, b.Lease.SandboxUID, b.Lease.InstanceUID, s.Claim, s.Sandbox, s.Pod)
	}
	return s, nil
}

func ownedBy(owners []metav1.OwnerReference, uid types.UID) bool {
	for _, o := range owners {
		if o.Controller != nil && *o.Controller && o.UID == uid {
			return true
		}
	}
	return false
}

// DeletePod deletes the pod of a seat at once, as the loss of its container would, and
// waits until it is not there any more.
func (i *Installation) DeletePod(t testing.TB, s Seat) {
	t.Helper()
	pods, grace := i.Cluster.Client.CoreV1().Pods(Sandboxes), int64(0)
	err := pods.Delete(t.Context(), s.Pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &s.Pod.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	kube.Eventually(t, "the end of pod "+s.Pod.Name, func(ctx context.Context) error {
		p, err := pods.Get(ctx, s.Pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && p.UID != s.Pod.UID {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// Gone waits until claim, sandbox and pod of a seat are not in the cluster any more.
func (i *Installation) Gone(t testing.TB, s Seat) {
	t.Helper()
	kube.Eventually(t, "the end of claim "+s.Binding.Lease.ClaimName, func(ctx context.Context) error {
		claims, err := i.Cluster.Dynamic.Resource(kube.Claims).Namespace(Sandboxes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		boxes, err := i.Cluster.Dynamic.Resource(kube.Sandboxes).Namespace(Sandboxes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := i.Cluster.Client.CoreV1().Pods(Sandboxes).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := map[types.UID]bool{}
		for _, o := range slices.Concat(claims.Items, boxes.Items) {
			left[o.GetUID()] = true
		}
		for n := range pods.Items {
			left[pods.Items[n].UID] = true
		}
		if left[s.Claim] || left[s.Sandbox] || left[s.Pod.UID] {
			return fmt.Errorf("there are claim: %v, sandbox: %v, pod: %v", left[s.Claim], left[s.Sandbox], left[s.Pod.UID])
		}
		return nil
	})
}

// Process is the worker of a pod, as the machine sees it.
func Process(t testing.TB, pod *corev1.Pod, program string) procs.Process {
	t.Helper()
	p, err := process(pod, program)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// process finds it by its cgroup, whose path has the pod's UID.
func process(pod *corev1.Pod, program string) (procs.Process, error) {
	all, err := procs.List()
	if err != nil {
		return procs.Process{}, err
	}
	for _, p := range all {
		if p.Program() != program {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "cgroup"))
		if err == nil && bytes.Contains(raw, []byte("pod"+string(pod.UID))) {
			return p, nil
		}
	}
	return procs.Process{}, fmt.Errorf("no process of pod %s is %s", pod.Name, program)
}
