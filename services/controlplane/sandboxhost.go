package controlplane

import (
	"context"
	"errors"
	"flag"
	"sync"
	"time"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane/internal/sandbox/host"
	"cofferdam.dev/services/controlplane/internal/sandbox/process"
)

const (
	// sandboxHostService is the name in the identity of a sandbox host.
	sandboxHostService = "sandboxhost"
	// hostTimeout is how long a control plane waits for its sandbox host.
	hostTimeout = 30 * time.Second
)

// HostConfig are the settings of a sandbox host.
type HostConfig struct {
	service.Base
	Sandboxes
}

// Flags registers all settings.
func (c *HostConfig) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	c.flags(fs)
}

// Validate reports everything that is wrong.
func (c *HostConfig) Validate() error { return errors.Join(c.Base.Validate(), c.validate()) }

// RunHost owns the sandboxes of a machine, for the replicas of the control plane on
// it, until ctx ends; then it ends them all. It has no store, mints nothing, and
// speaks to no worker.
func RunHost(ctx context.Context, cfg *HostConfig, rt *service.Runtime) (err error) {
	p, err := cfg.provider(ctx, &cfg.Base, rt, nil)
	if err != nil {
		return err
	}
	addresses := map[string]string{}
	for _, name := range process.Services() {
		addresses[name] = p.Address(name)
	}
	h, err := host.New(p, addresses, p.Describe(ctx), rt.Logger)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	telling, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { h.Run(telling) })
	defer func() {
		err = errors.Join(err, p.Close())
		stop()
		wg.Wait()
	}()
	p.Warm()
	return rt.Serve(ctx, h.Handler(), identity.AllowList{identity.Exactly(identity.Service(rt.TrustDomain, "controlplane"))})
}
