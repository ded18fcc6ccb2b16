// Command controlplane is Cofferdam's control plane.
package main

import (
	"context"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane"
)

func main() {
	var cfg controlplane.Config
	service.Main("controlplane", &cfg, func(ctx context.Context, rt *service.Runtime) error {
		return controlplane.Run(ctx, &cfg, rt)
	})
}
