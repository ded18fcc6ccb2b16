// Command worker is the worker that runs inside a sandbox.
package main

import (
	"context"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/worker"
)

func main() {
	var cfg worker.Config
	service.Main("worker", &cfg, func(ctx context.Context, rt *service.Runtime) error {
		return worker.Run(ctx, &cfg, rt)
	})
}
