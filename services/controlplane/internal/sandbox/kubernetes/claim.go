package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

const (
	// workerPort is where a worker listens in its pod.
	workerPort = 8443
	// lookAfter is when the API server is asked about a claim that nothing is told of: a
	// watch may be broken. Each time it is asked in vain the next time is later, up to
	// lookAtMost after the answer: what is slow for many claims would be slower for it.
	lookAfter  = time.Second
	lookAtMost = 5 * time.Second
	// awayPatience is how long a claim waits for an API server that does not answer,
	// and schedulePatience for a node that takes its pod.
	awayPatience     = 10 * time.Second
	schedulePatience = 5 * time.Second
	// dropTimeout bounds the giving back of a claim that was refused.
	dropTimeout = 5 * time.Second
	// enabledAgain is how long to wait for a profile that is switched off.
	enabledAgain = time.Minute
)

var (
	errDisabled  = errors.New("the operator has switched the sandbox profile off")
	errNoProfile = errors.New("no sandbox profile has this name and runs this harness: see --sandbox-profiles")
	errForeign   = errors.New("the claim was made by somebody else")
	errMax       = errors.New("the profile has as many claims as it may")
	errAway      = errors.New("the Kubernetes API does not answer")
)

// Claim implements sandbox.Provider.
func (p *Provider) Claim(ctx context.Context, c sandbox.Claim) (sandbox.Instance, error) {
	const op = "kubernetes.Claim"
	if err := ctx.Err(); err != nil {
		return sandbox.Instance{}, fault.From(err, op)
	}
	profile, err := p.profileOf(c)
	if err != nil {
		return sandbox.Instance{}, err
	}
	// What this replica makes has its place until the caches show it; the quota of the
	// namespace is what is exact.
	place := p.making.enter(c.Name, profile.WarmPool)
	defer p.making.leave(place)
	claim, err := p.claimFor(ctx, profile, place)
	if err != nil {
		return p.withoutAPI(ctx, c.Name, err, op)
	}
	p.traces.note(c.Name, claim.UID)
	p.countUntilSeen(claim)
	in, err := p.await(ctx, profile, claim)
	switch {
	case err == nil:
		return in, nil
	case away(err):
		return p.withoutAPI(ctx, c.Name, err, op)
	case ctx.Err() != nil && (errors.Is(err, errWaiting) || errors.Is(err, ctx.Err())):
		p.cfg.Logger.WarnContext(ctx, "sandbox did not get ready in time", "claim", c.Name, "error", err.Error())
		return sandbox.Instance{}, fault.From(ctx.Err(), op) // it is there for the next call
	}
	p.drop(ctx, claim, err)
	return sandbox.Instance{}, refused(err, op)
}

// step begins a span, where the caller has one.
func step(ctx context.Context, name string) (context.Context, func()) {
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("kubernetes").Start(ctx, name)
	return ctx, func() { span.End() }
}

// withoutAPI gives what was given before where the API server does not answer.
func (p *Provider) withoutAPI(ctx context.Context, name string, err error, op string) (sandbox.Instance, error) {
	if ctx.Err() != nil {
		return sandbox.Instance{}, fault.From(ctx.Err(), op)
	}
	if !away(err) {
		return sandbox.Instance{}, fault.From(err, op)
	}
	if in, ok := p.exits.of(name); ok {
		return in, nil
	}
	return sandbox.Instance{}, fault.Wrap(errors.Join(errAway, err), fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
}

// profileOf gives the profile of a claim. A claim without one gets the first that
// runs its harness and is not switched off.
func (p *Provider) profileOf(c sandbox.Claim) (*Profile, error) {
	const op = "kubernetes.Claim"
	off := false
	for i := range p.cfg.Profiles {
		profile := &p.cfg.Profiles[i]
		switch {
		case profile.Harness != c.Harness || c.Profile != "" && c.Profile != profile.Name:
		case profile.Disabled:
			off = true
		default:
			return profile, nil
		}
	}
	if off {
		return nil, fault.Wrap(errDisabled, fault.SandboxCapacity, op, fault.RetryAfter(enabledAgain))
	}
	return nil, fault.Wrap(errNoProfile, fault.WorkerMismatch, op)
}

// claimFor gives the claim of that name, made if there is none. Where the API server
// does not answer it is asked again for a while: a create whose answer was lost is
// read back.
func (p *Provider) claimFor(ctx context.Context, profile *Profile, place *call) (*extensions.SandboxClaim, error) {
	ctx, end := step(ctx, "kubernetes.create")
	defer end()
	name := place.name
	if _, before := p.exits.of(name); before {
		claim, err := p.api.claim(ctx, name) // not asked for long: it may be given without
		if err == nil && claim.DeletionTimestamp == nil {
			return p.same(claim)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	var claim *extensions.SandboxClaim
	err := patiently(ctx, func() (err error) {
		claim, err = p.obtain(ctx, profile, place)
		return err
	})
	return claim, err
}

// patiently repeats what the API server did not answer.
func patiently(ctx context.Context, do func() error) error {
	until := time.Now().Add(awayPatience)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := do()
		if !away(err) || ctx.Err() != nil || !time.Now().Before(until) {
			return err
		}
		if !sleep(ctx, wait) {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// obtain creates a claim, or reads it back. A claim of an earlier try that is still
// being deleted is waited for.
func (p *Provider) obtain(ctx context.Context, profile *Profile, place *call) (*extensions.SandboxClaim, error) {
	const op = "kubernetes.Claim"
	name := place.name
	for {
		claim, err := p.api.claim(ctx, name)
		switch {
		case err == nil && claim.DeletionTimestamp != nil:
			if _, err := p.same(claim); err != nil {
				return nil, err
			}
			p.traces.note(name, claim.UID)
			if err := p.allGone(ctx, name, []types.UID{claim.UID}); err != nil {
				return nil, err
			}
			continue
		case err == nil:
			return p.same(claim)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
		// What somebody deleted in the background may have left its pod.
		if uids, _ := p.leftFor(name); len(uids) > 0 {
			if err := p.allGone(ctx, name, uids); err != nil {
				return nil, err
			}
			continue
		}
		if err := p.room(ctx, profile, place); err != nil {
			return nil, err
		}
		claim, err = p.api.create(ctx, name, profile.WarmPool, time.Now().Add(profile.lifetime()))
		switch {
		case err == nil:
			return claim, nil
		case apierrors.IsAlreadyExists(err):
			continue // another call was first, or the answer to this one was lost
		case apierrors.IsForbidden(err) && overQuota(err.Error()):
			return nil, fault.Wrap(err, fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
		case apierrors.IsConflict(err):
			// The quota that others are counted in at the same moment: nothing was decided.
			return nil, apierrors.NewTooManyRequests(err.Error(), 1)
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			return nil, fault.Wrap(err, fault.Internal, op) // rights, namespace or definitions are missing
		default:
			return nil, err
		}
	}
}

// countUntilSeen counts a claim until the cache shows it, which may have been before this.
func (p *Provider) countUntilSeen(claim *extensions.SandboxClaim) {
	p.making.count(claim)
	if known := p.caches.claim(p.api.namespace + "/" + claim.Name); known != nil && known.UID == claim.UID {
		p.making.seen(claim.UID)
	}
}

// same refuses a claim that is not ours, whatever its name.
func (p *Provider) same(claim *extensions.SandboxClaim) (*extensions.SandboxClaim, error) {
	if !p.api.ours(claim) {
		return nil, fault.Wrap(errForeign, fault.WorkerMismatch, "kubernetes.Claim")
	}
	return claim, nil
}

// Room implements sandbox.Provider. An API server that does not answer says nothing.
func (p *Provider) Room(ctx context.Context, c sandbox.Claim) error {
	profile, err := p.profileOf(c)
	if err == nil {
		if _, given := p.exits.of(c.Name); given {
			return nil
		}
		err = p.room(ctx, profile, nil)
	}
	if !fault.Is(err, fault.SandboxCapacity) {
		return nil // the claim will say what is wrong with it
	}
	if _, there := p.api.claim(ctx, c.Name); there == nil {
		return nil // it was made before, and takes no more room
	}
	return err
}

// room refuses a claim that could not be answered; place is nil for one that nobody makes
// yet.
func (p *Provider) room(ctx context.Context, profile *Profile, place *call) error {
	const op = "kubernetes.Claim"
	full, err := p.full(ctx, profile, place)
	if err != nil {
		return err
	}
	if full {
		return fault.Wrap(errMax, fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
	}
	if profile.ColdStart || p.caches.warm(profile.WarmPool) > 0 {
		return nil
	}
	sandboxes, err := p.api.sandboxes(ctx, agents.SandboxWarmPoolLabel, "")
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		if warmOf(s, profile.WarmPool) {
			return nil
		}
	}
	return fault.Wrap(errCold, fault.SandboxCapacity, op, fault.RetryAfter(roomAgain))
}

// full reports whether a profile has as many claims as it may. What this replica makes at
// the same moment counts where it came first. The cache says whether it is worth asking, if
// it has been filled.
func (p *Provider) full(ctx context.Context, profile *Profile, place *call) (bool, error) {
	others, unseen := p.making.before(place, profile.WarmPool), p.making.notSeen(profile.WarmPool)
	reached := func(claims []*extensions.SandboxClaim, more []string) bool {
		names := make(map[string]struct{}, len(claims)+len(more))
		for _, name := range more {
			names[name] = struct{}{}
		}
		for _, c := range claims {
			if c.Spec.WarmPoolRef.Name == profile.WarmPool {
				names[c.Name] = struct{}{}
			}
		}
		if place != nil {
			delete(names, place.name) // two calls about one claim
		}
		return len(names) >= profile.Max
	}
	known := slices.AppendSeq(slices.Clone(others), maps.Values(unseen))
	if p.caches.claims.HasSynced() && !reached(p.caches.claimed(profile.WarmPool), known) {
		return false, nil
	}
	claims, err := p.api.claims(ctx)
	if err != nil {
		return false, err
	}
	for _, c := range claims {
		delete(unseen, c.UID)
	}
	for uid := range unseen {
		p.making.seen(uid) // it was deleted, and the cache will never show it
	}
	return reached(claims, others), nil
}

// await waits for the answer to a claim and verifies it. The caches say when to look;
// what is given was read from the API server.
func (p *Provider) await(ctx context.Context, profile *Profile, claim *extensions.SandboxClaim) (sandbox.Instance, error) {
	if claim.Spec.WarmPoolRef.Name != profile.WarmPool {
		return sandbox.Instance{}, errPool
	}
	rung, stop := p.bell.listen(claim.UID)
	defer stop()
	next := newLooks()
	defer next.Stop()
	if !p.promising(profile, claim) { // one that was just made has no answer for a while
		if err := p.worthLooking(ctx, profile, claim, rung, next.C); err != nil {
			return sandbox.Instance{}, err
		}
	}
	var patience patience
	for {
		in, err := p.answered(ctx, profile, claim)
		if err == nil {
			return in, nil
		}
		if ctx.Err() != nil {
			return in, errors.Join(ctx.Err(), err)
		}
		if !patience.bears(err) {
			return in, err
		}
		if _, before := p.exits.of(claim.Name); before && away(err) {
			return in, err // it may be given without
		}
		next.later()
		if errors.Is(err, errUnschedulable) {
			next.Reset(lookAfter) // what it takes is bounded
		}
		if werr := p.worthLooking(ctx, profile, claim, rung, next.C); werr != nil {
			return sandbox.Instance{}, errors.Join(werr, err)
		}
	}
}

// patience is with what may get over by itself: since when it is so, zero where it is not.
type patience struct{ away, noNode time.Time }

// bears reports whether it is worth looking again after a refusal.
func (s *patience) bears(err error) bool {
	switch {
	case away(err):
		return !lasts(&s.away, awayPatience)
	case errors.Is(err, errUnschedulable):
		return !lasts(&s.noNode, schedulePatience)
	case errors.Is(err, errWaiting):
		*s = patience{}
		return true
	}
	return false
}

// lasts reports whether something has been so for that long.
func lasts(since *time.Time, patience time.Duration) bool {
	if since.IsZero() {
		*since = time.Now()
	}
	return time.Since(*since) >= patience
}

// worthLooking returns when the caches have more to say than to wait, or it is time to
// look anyway.
func (p *Provider) worthLooking(ctx context.Context, profile *Profile, claim *extensions.SandboxClaim, rung <-chan struct{}, anyway <-chan time.Time) error {
	_, end := step(ctx, "kubernetes.wait")
	defer end()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-anyway:
			return nil
		case <-rung:
			if p.promising(profile, claim) {
				return nil
			}
		}
	}
}

// promising reports whether the caches know of an answer, or of a refusal. A claim that
// they do not know may be too new.
func (p *Provider) promising(profile *Profile, claim *extensions.SandboxClaim) bool {
	_, err := p.caches.view(p.api.namespace+"/"+claim.Name, claim.UID).answer(profile.ColdStart)
	return !errors.Is(err, errWaiting) && !errors.Is(err, errEnding)
}

// answered looks once.
func (p *Provider) answered(ctx context.Context, profile *Profile, claim *extensions.SandboxClaim) (sandbox.Instance, error) {
	ctx, end := step(ctx, "kubernetes.read")
	defer end()
	v, err := p.look(ctx, claim.Name, claim.UID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	a, err := v.answer(profile.ColdStart)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if err := profile.verify(a); err != nil {
		return sandbox.Instance{}, err
	}
	in, err := p.instance(profile, a)
	if err != nil {
		return in, err
	}
	var shutdown time.Time
	if l := a.claim.Spec.Lifecycle; l != nil && l.ShutdownTime != nil {
		shutdown = l.ShutdownTime.Time
	}
	p.exits.give(in, shutdown)
	return in, nil
}

func (p *Provider) instance(profile *Profile, a answer) (sandbox.Instance, error) {
	if !identity.ValidInstanceUID(string(a.pod.UID)) {
		return sandbox.Instance{}, fmt.Errorf("%w: the pod has no usable UID", errOther)
	}
	return sandbox.Instance{
		ClaimName: a.claim.Name, ClaimUID: string(a.claim.UID), SandboxUID: string(a.sandbox.UID), UID: string(a.pod.UID),
		Address: "https://" + net.JoinHostPort(a.pod.Status.PodIP, strconv.Itoa(workerPort)),
		ID:      identity.Sandbox(p.cfg.TrustDomain, string(a.pod.UID)), ImageDigest: profile.digest(),
	}, nil
}

// drop gives back a claim that was refused. What fails here is an orphan, and is
// released as one.
func (p *Provider) drop(ctx context.Context, claim *extensions.SandboxClaim, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	p.exits.forget(claim.Name)
	err := p.api.delete(ctx, claim.Name, claim.UID)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil
	}
	p.cfg.Logger.WarnContext(ctx, "claim was refused and is given back", "claim", claim.Name, "error", errors.Join(why, err).Error())
}

// looks are those that are made anyway.
type looks struct {
	*time.Timer

	after time.Duration
}

func newLooks() *looks { return &looks{time.NewTimer(lookAfter), lookAfter} }

// later has the next one wait, from now on, longer than this one did.
func (l *looks) later() {
	l.after = min(2*l.after, lookAtMost)
	l.Reset(l.after)
}

// gone waits until a claim of that UID, and with it sandbox and pod, is not there any
// more. While the caches know of anything it is not worth looking.
func (p *Provider) gone(ctx context.Context, name string, uid types.UID) error {
	rung, stop := p.bell.listen(uid)
	defer stop()
	next := newLooks()
	defer next.Stop()
	for {
		v, err := p.lookNow(ctx, name, uid)
		if err == nil && v.claim == nil && len(v.sandboxes) == 0 && len(v.pods) == 0 {
			return nil
		}
		if err != nil && !away(err) {
			return err
		}
		next.later()
		for wait := true; wait; {
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-next.C:
				wait = false
			case <-rung:
				known := p.caches.view(p.api.namespace+"/"+name, uid)
				wait = known.claim != nil || len(known.sandboxes) > 0 || len(known.pods) > 0
			}
		}
	}
}
