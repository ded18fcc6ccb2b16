// Command scale is `make scale`: see package scale. The last line of its stdout
// is the report.
package main

import (
	"context"
	"flag"
	"os"

	"cofferdam.dev/tests/internal/command"
	"cofferdam.dev/tests/scale"
	"cofferdam.dev/tests/stack"
)

func main() {
	os.Exit(command.Main("scale", stack.Command, func(fs *flag.FlagSet) func(context.Context, command.Env) (command.Report, error) {
		bindings := fs.Int("bindings", 1000, "how many conversations at once")
		claims := fs.Int("claims", 50, "how many claims are timed, warm and cold each")
		return func(ctx context.Context, e command.Env) (command.Report, error) {
			return scale.Run(ctx, scale.Config{Command: e.Command, Folder: e.Folder, Bindings: *bindings, Claims: *claims, Progress: e.Progress})
		}
	}))
}
