// Command statefacade keeps thread state and memory.
package main

import (
	"context"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/statefacade"
)

func main() {
	cfg := &statefacade.Config{}
	service.Main("statefacade", cfg, func(ctx context.Context, rt *service.Runtime) error {
		s, err := statefacade.New(ctx, cfg, rt, statefacade.Deps{})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	})
}
