// Command capability runs the capability service.
package main

import (
	"context"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/capability"
)

func main() {
	cfg := &capability.Config{}
	service.Main("capability", cfg, func(ctx context.Context, rt *service.Runtime) error {
		return capability.Run(ctx, cfg, rt)
	})
}
