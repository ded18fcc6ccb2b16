// Command modelproxy carries model calls from sandboxes to model endpoints.
package main

import (
	"context"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/modelproxy"
)

func main() {
	cfg := &modelproxy.Config{}
	service.Main("modelproxy", cfg, func(ctx context.Context, rt *service.Runtime) error {
		s, err := modelproxy.New(ctx, cfg, rt, modelproxy.Deps{})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	})
}
