// Command worker is the worker that runs inside a sandbox.
package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/worker"
)

func main() {
	// Nothing beside it may look into the worker, whatever its uid: capabilities
	// are held in memory. An exec resets this, so nobody else can do it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "worker: prctl:", err)
		os.Exit(1)
	}
	var cfg worker.Config
	service.Main("worker", &cfg, func(ctx context.Context, rt *service.Runtime) error {
		return worker.Run(ctx, &cfg, rt)
	})
}
