package kubernetes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// The indices: what carries the label of a claim, and what has an owner.
const (
	byClaimUID = "claim"
	byOwnerUID = "owner"
)

// caches hold the claims of this installation, and the sandboxes and pods of the
// namespace, the warm ones among them.
type caches struct {
	claims, sandboxes, pods cache.SharedIndexInformer
	logger                  *slog.Logger
	listeners
}

// listeners are told of what the caches hear.
type listeners struct {
	bell   *bell
	exits  *exits
	traces *traces
	making *making
}

func newCaches(api client, resync time.Duration, logger *slog.Logger, told listeners) (*caches, error) {
	indexers := func() cache.Indexers {
		return cache.Indexers{
			byClaimUID: func(o any) ([]string, error) { return nonEmpty(labelOf(o)), nil },
			byOwnerUID: func(o any) ([]string, error) { return owners(o), nil },
		}
	}
	ours := func(o *metav1.ListOptions) { o.LabelSelector = api.selector() }
	c := &caches{
		claims:    dynamicinformer.NewFilteredDynamicInformer(api.Custom, claimResource, api.namespace, resync, cache.Indexers{}, ours).Informer(),
		sandboxes: dynamicinformer.NewFilteredDynamicInformer(api.Custom, sandboxResource, api.namespace, resync, indexers(), nil).Informer(),
		pods:      coreinformers.NewFilteredPodInformer(api.Core, api.namespace, resync, indexers(), nil),
		logger:    logger, listeners: told,
	}
	for _, informer := range c.all() {
		if err := informer.SetWatchErrorHandlerWithContext(c.lost); err != nil {
			return nil, err
		}
		if err := informer.SetTransform(slim); err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    c.changed,
			UpdateFunc: c.replaced,
			DeleteFunc: c.deleted,
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *caches) all() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{c.claims, c.sandboxes, c.pods}
}

// synced waits until ctx ends for all that there is to be known.
func (c *caches) synced(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), c.claims.HasSynced, c.sandboxes.HasSynced, c.pods.HasSynced)
}

// lost is told of a watch that broke; it is made again, and what was missed is read.
func (c *caches) lost(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() == nil {
		c.logger.WarnContext(ctx, "a watch of the Kubernetes API broke", "error", err.Error())
	}
}

// slim drops who wrote which field, which is most of many objects, and decodes the rest
// once, so that whoever looks at all of them reads fields.
func slim(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil {
		m.SetManagedFields(nil)
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		switch u.GetKind() {
		case extensions.SandboxClaimKind:
			if claim, err := typed[extensions.SandboxClaim](u); err == nil {
				return claim, nil
			}
		case agents.SandboxKind:
			if s, err := typed[agents.Sandbox](u); err == nil {
				return s, nil
			}
		}
	}
	return o, nil
}

// replaced is told of a change, or of another object under the same name, where a watch
// was away in between.
func (c *caches) replaced(old, now any) {
	before, err := meta.Accessor(old)
	after, aerr := meta.Accessor(now)
	if err == nil && aerr == nil && before.GetUID() != after.GetUID() {
		c.deleted(old)
	}
	c.changed(now)
}

func (c *caches) changed(o any) {
	switch now := o.(type) {
	case *corev1.Pod:
		if ended(now) {
			c.exits.ended(now, false)
		}
	case *extensions.SandboxClaim:
		c.making.seen(now.UID)
	}
	c.ring(o)
}

func (c *caches) deleted(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	switch gone := o.(type) {
	case *corev1.Pod:
		c.exits.ended(gone, true)
	case *extensions.SandboxClaim:
		c.making.seen(gone.UID)
		c.traces.note(gone.Name, gone.UID)
	}
	c.ring(o)
}

// ring wakes who waits for a claim.
func (c *caches) ring(o any) {
	m, err := meta.Accessor(o)
	if err != nil {
		return
	}
	c.bell.ring(m.GetUID())
	if uid := labelOf(o); uid != "" {
		c.bell.ring(types.UID(uid))
	}
}

// view is what the caches know of a claim. It decides nothing.
func (c *caches) view(key string, uid types.UID) view {
	var v view
	if claim := c.claim(key); claim != nil && claim.UID == uid {
		v.claim = claim
	}
	for _, o := range indexed(c.sandboxes, byClaimUID, uid) {
		if s := as[agents.Sandbox](o); s != nil {
			v.sandboxes = append(v.sandboxes, s)
		}
	}
	for _, o := range indexed(c.pods, byClaimUID, uid) {
		if pod, ok := o.(*corev1.Pod); ok {
			v.pods = append(v.pods, pod)
		}
	}
	return v
}

// claim gives the one of a key, nil where none is known.
func (c *caches) claim(key string) *extensions.SandboxClaim {
	o, ok, err := c.claims.GetStore().GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	return as[extensions.SandboxClaim](o)
}

// revisions are how much of sandboxes and pods the caches know.
func (c *caches) revisions() revisions {
	return revisions{sandboxes: c.sandboxes.LastSyncResourceVersion(), pods: c.pods.LastSyncResourceVersion()}
}

// controlled gives the sandboxes and pods that name an owner.
func (c *caches) controlled(owner types.UID) []metav1.Object {
	var out []metav1.Object
	for _, informer := range []cache.SharedIndexInformer{c.sandboxes, c.pods} {
		for _, o := range indexed(informer, byOwnerUID, owner) {
			if m, err := meta.Accessor(o); err == nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// warm counts the sandboxes of a pool that are ready and nobody's.
func (c *caches) warm(pool string) int {
	n := 0
	for _, o := range c.sandboxes.GetStore().List() {
		if s := as[agents.Sandbox](o); s != nil && warmOf(s, pool) {
			n++
		}
	}
	return n
}

// warmOf reports whether a sandbox can be claimed from a pool at once.
func warmOf(s *agents.Sandbox, pool string) bool {
	owner := metav1.GetControllerOf(s)
	return owner != nil && owner.Kind == extensions.SandboxWarmPoolKind && owner.Name == pool && s.DeletionTimestamp == nil &&
		meta.IsStatusConditionTrue(s.Status.Conditions, ready)
}

// claimed are the claims of a pool.
func (c *caches) claimed(pool string) []*extensions.SandboxClaim {
	var out []*extensions.SandboxClaim
	for _, o := range c.claims.GetStore().List() {
		if s := as[extensions.SandboxClaim](o); s != nil && s.Spec.WarmPoolRef.Name == pool {
			out = append(out, s)
		}
	}
	return out
}

func indexed(informer cache.SharedIndexInformer, index string, uid types.UID) []any {
	out, err := informer.GetIndexer().ByIndex(index, string(uid))
	if err != nil { // there is no such index, which newCaches made
		return nil
	}
	return out
}

// as gives what slim has made of an object, or nil where it could not.
func as[T any](o any) *T {
	out, _ := o.(*T)
	return out
}

func labelOf(o any) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return ""
	}
	return m.GetLabels()[claimUIDLabel]
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func owners(o any) []string {
	m, err := meta.Accessor(o)
	if err != nil {
		return nil
	}
	var out []string
	for _, r := range m.GetOwnerReferences() {
		out = append(out, string(r.UID))
	}
	return out
}

// bell wakes those who wait for something about a claim.
type bell struct {
	mu   sync.Mutex
	hear map[types.UID]map[chan struct{}]bool
}

func newBell() *bell { return &bell{hear: map[types.UID]map[chan struct{}]bool{}} }

// listen gives a channel that holds a value once something has changed since.
func (b *bell) listen(uid types.UID) (rung <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hear[uid] == nil {
		b.hear[uid] = map[chan struct{}]bool{}
	}
	b.hear[uid][c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.hear[uid], c)
		if len(b.hear[uid]) == 0 {
			delete(b.hear, uid)
		}
	}
}

func (b *bell) ring(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.hear[uid] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
