// Command chaostools is `make chaos-tools`: see package chaostools. The last line of its stdout
// is the report.
package main

import (
	"context"
	"flag"
	"os"

	"cofferdam.dev/tests/chaostools"
	"cofferdam.dev/tests/internal/command"
	"cofferdam.dev/tests/stack"
)

func main() {
	os.Exit(command.Main("chaos-tools", stack.Command, func(fs *flag.FlagSet) func(context.Context, command.Env) (command.Report, error) {
		calls := fs.Int("calls", 1000, "how many calls")
		return func(ctx context.Context, e command.Env) (command.Report, error) {
			return chaostools.Run(ctx, chaostools.Config{Command: e.Command, Folder: e.Folder, Calls: *calls, Progress: e.Progress})
		}
	}))
}
