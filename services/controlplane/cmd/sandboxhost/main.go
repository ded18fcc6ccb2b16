// Command sandboxhost owns the sandboxes of a machine on which several replicas of
// the control plane run.
package main

import (
	"context"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane"
)

func main() {
	var cfg controlplane.HostConfig
	service.Main("sandboxhost", &cfg, func(ctx context.Context, rt *service.Runtime) error {
		return controlplane.RunHost(ctx, &cfg, rt)
	})
}
