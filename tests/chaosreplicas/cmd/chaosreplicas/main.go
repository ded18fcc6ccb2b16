// Command chaosreplicas is `make chaos-replicas`: see package chaosreplicas. The
// last line of its stdout is the report.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"cofferdam.dev/tests/chaosreplicas"
	"cofferdam.dev/tests/internal/command"
	"cofferdam.dev/tests/stack"
)

func main() {
	os.Exit(command.Main("chaos-replicas", stack.Command, func(fs *flag.FlagSet) func(context.Context, command.Env) (command.Report, error) {
		duration := fs.Duration("duration", 10*time.Minute, "how long things are killed and replaced")
		return func(ctx context.Context, e command.Env) (command.Report, error) {
			return chaosreplicas.Run(ctx, chaosreplicas.Config{Command: e.Command, Folder: e.Folder, Duration: *duration, Progress: e.Progress})
		}
	}))
}
