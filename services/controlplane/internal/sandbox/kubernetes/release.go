package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

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
		return p.released(ctx, claimName, op)
	case err != nil:
		return unanswered(ctx, err, op)
	case !p.api.ours(claim):
		p.cfg.Logger.WarnContext(ctx, "a claim is somebody else's and is left alone", "claim", claimName)
		return nil
	}
	p.exits.forget(claimName)
	if err := p.api.delete(ctx, claimName, claim.UID); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return unanswered(ctx, err, op)
	}
	if err := p.gone(ctx, claimName, claim.UID); err != nil {
		return unanswered(ctx, err, op)
	}
	return nil
}

// released sees to what was given to a claim that somebody else has deleted: its pod
// may be there a little longer.
func (p *Provider) released(ctx context.Context, claimName, op string) error {
	in, ok := p.exits.of(claimName)
	if !ok {
		return nil
	}
	p.exits.forget(claimName)
	if err := p.gone(ctx, claimName, types.UID(in.ClaimUID)); err != nil {
		return unanswered(ctx, err, op)
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
	claim, err := p.api.claim(ctx, claimName)
	var v view
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err == nil && (!p.api.ours(claim) || claim.DeletionTimestamp != nil):
		return false, nil
	case err == nil:
		v, err = p.look(ctx, claimName, claim.UID)
	}
	switch {
	case err == nil:
		a, refusal := v.single()
		return refusal == nil && a.pod != nil && string(a.pod.UID) == uid && !ended(a.pod), nil
	case ctx.Err() != nil:
		return false, fault.From(ctx.Err(), op)
	case !away(err):
		return false, fault.Wrap(err, fault.Internal, op)
	}
	if in, ok := p.exits.of(claimName); ok && in.UID == uid {
		return true, nil
	}
	return false, fault.Wrap(err, fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
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
