// Command worker is the worker that runs inside a sandbox.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/worker"
	"cofferdam.dev/services/worker/internal/reap"
)

func main() {
	// Nothing beside it may look into the worker, whatever its uid: capabilities
	// are held in memory. An exec resets this, so nobody else can do it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "worker: prctl:", err)
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == worker.DescribeCommand {
		if err := worker.Describe(os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	var cfg worker.Config
	service.Main("worker", &cfg, func(ctx context.Context, rt *service.Runtime) error {
		// Orphans come to process 1, and the runner is a child. Neither is waited for
		// elsewhere.
		reaping, stop := context.WithCancel(context.WithoutCancel(ctx))
		var reaper sync.WaitGroup
		reaper.Go(func() { reap.New(nil).Run(reaping) })
		defer reaper.Wait()
		defer stop()
		return worker.Run(ctx, &cfg, rt)
	})
}
