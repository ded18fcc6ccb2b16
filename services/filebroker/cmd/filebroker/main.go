// Command filebroker keeps files.
package main

import (
	"context"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/filebroker"
)

func main() {
	cfg := &filebroker.Config{}
	service.Main("filebroker", cfg, func(ctx context.Context, rt *service.Runtime) error {
		s, err := filebroker.New(ctx, cfg, rt, filebroker.Deps{})
		if err != nil {
			return err
		}
		return s.Run(ctx)
	})
}
