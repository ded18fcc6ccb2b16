// Command toolbroker calls tools for workers, without giving them a credential.
package main

import (
	"context"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/toolbroker"
)

func main() {
	cfg := &toolbroker.Config{}
	service.Main("toolbroker", cfg, func(ctx context.Context, rt *service.Runtime) error {
		s, err := toolbroker.New(ctx, cfg, rt, toolbroker.Deps{})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	})
}
