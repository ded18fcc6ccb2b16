package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// Release implements sandbox.Provider. A claim that this installation did not make is
// not there for it.
func (p *Provider) Release(ctx context.Context, claimName string) error {
	const op = "kubernetes.Release"
	claim, err := p.api.claim(ctx, claimName)
	switch {
	case apierrors.IsNotFound(err):
		p.exits.forget(claimName)
	case err != nil:
		return unanswered(ctx, err, op)
	case !p.api.ours(claim):
		p.cfg.Logger.WarnContext(ctx, "a claim is somebody else's and is left alone", "claim", claimName)
		return nil
	default:
		p.traces.note(claimName, claim.UID)
		p.exits.forget(claimName)
		if err := p.api.delete(ctx, claimName, claim.UID); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return unanswered(ctx, err, op)
		}
	}
	uids, err := p.leftOf(ctx, claimName)
	if err != nil {
		return unanswered(ctx, err, op)
	}
	if err := p.allGone(ctx, claimName, uids); err != nil {
		return unanswered(ctx, err, op)
	}
	return nil
}

// leftOf gives the claims of a name of which something may be left, whoever deleted them
// and however. Where this process has heard of no such claim, which may have been gone
// before it started, a sandbox still says whose it was.
func (p *Provider) leftOf(ctx context.Context, name string) ([]types.UID, error) {
	uids, known := p.leftFor(name)
	if known {
		return uids, nil
	}
	sandboxes, err := p.api.sandboxes(ctx, claimUIDLabel, "")
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes {
		if owner := metav1.GetControllerOf(s); owner != nil && owner.Kind == extensions.SandboxClaimKind && owner.Name == name {
			p.traces.note(name, owner.UID)
			uids = append(uids, owner.UID)
		}
	}
	return uids, nil
}

// leftFor is leftOf as far as this process has heard.
func (p *Provider) leftFor(name string) (uids []types.UID, known bool) {
	if claim := p.caches.claim(p.api.namespace + "/" + name); claim != nil {
		p.traces.note(name, claim.UID) // or a watch has not told of its end yet
	}
	return p.traces.of(name)
}

// allGone waits until nothing is left of these claims of a name.
func (p *Provider) allGone(ctx context.Context, name string, uids []types.UID) error {
	for _, uid := range uids {
		if err := p.gone(ctx, name, uid); err != nil {
			return err
		}
		p.traces.end(name, uid)
	}
	return nil
}

// unanswered is the failure of a request that decides nothing.
func unanswered(ctx context.Context, err error, op string) error {
	if ctx.Err() != nil {
		return fault.From(ctx.Err(), op)
	}
	if away(err) {
		return fault.Wrap(err, fault.DependencyUnavailable, op)
	}
	return fault.Wrap(err, fault.Internal, op)
}

// Alive implements sandbox.Provider. While the API server does not answer, what was
// given and is not known to have ended is alive: who uses it finds out.
func (p *Provider) Alive(ctx context.Context, claimName, uid string) (bool, error) {
	const op = "kubernetes.Alive"
	alive, err := p.alive(ctx, claimName, uid)
	if err == nil {
		return alive, nil
	}
	if ctx.Err() != nil {
		return false, fault.From(ctx.Err(), op)
	}
	if !away(err) {
		return false, fault.Wrap(err, fault.Internal, op)
	}
	if in, ok := p.exits.of(claimName); ok && in.UID == uid {
		return true, nil
	}
	return false, fault.Wrap(err, fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
}

// alive asks the API server.
func (p *Provider) alive(ctx context.Context, claimName, uid string) (bool, error) {
	claim, err := p.api.claim(ctx, claimName)
	if err != nil {
		return false, ignoreGone(err)
	}
	if !p.api.ours(claim) || claim.DeletionTimestamp != nil {
		return false, nil
	}
	v, err := p.look(ctx, claimName, claim.UID)
	if err != nil {
		return false, err
	}
	a, refusal := v.single()
	return refusal == nil && a.pod != nil && string(a.pod.UID) == uid && !ended(a.pod), nil
}

// List implements sandbox.Provider: the claims of this installation, whichever replica
// made them. One that has no pod, or a pod that has ended, has no UID.
func (p *Provider) List(ctx context.Context) ([]sandbox.Instance, error) {
	const op = "kubernetes.List"
	claims, err := p.api.claims(ctx)
	if err != nil {
		return nil, unanswered(ctx, err, op)
	}
	pods, err := p.api.pods(ctx, claimUIDLabel, "")
	if err != nil {
		return nil, unanswered(ctx, err, op)
	}
	byClaim := map[string]*corev1.Pod{}
	for _, pod := range pods {
		if !ended(pod) {
			byClaim[pod.Labels[claimUIDLabel]] = pod
		}
	}
	out := make([]sandbox.Instance, 0, len(claims))
	for _, c := range claims {
		if c.DeletionTimestamp != nil {
			continue
		}
		in := sandbox.Instance{ClaimName: c.Name, ClaimUID: string(c.UID)}
		if pod := byClaim[in.ClaimUID]; pod != nil {
			in.UID, in.ID = string(pod.UID), identity.Sandbox(p.cfg.TrustDomain, string(pod.UID))
		}
		out = append(out, in)
	}
	return out, nil
}
