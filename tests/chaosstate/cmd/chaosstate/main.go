// Command chaosstate is `make chaos-state`: see package chaosstate. The last line of its stdout
// is the report.
package main

import (
	"context"
	"flag"
	"os"

	"cofferdam.dev/tests/chaosstate"
	"cofferdam.dev/tests/internal/command"
	"cofferdam.dev/tests/stack"
)

// judged is a report that is judged by how many kills were asked for.
type judged struct {
	*chaosstate.Report

	kills int
}

// Verdict implements command.Report.
func (j judged) Verdict() error { return j.Report.Verdict(j.kills) }

func main() {
	os.Exit(command.Main("chaos-state", stack.FailpointCommand, func(fs *flag.FlagSet) func(context.Context, command.Env) (command.Report, error) {
		kills := fs.Int("kills", 1000, "how many processes are killed at least")
		return func(ctx context.Context, e command.Env) (command.Report, error) {
			r, err := chaosstate.Run(ctx, chaosstate.Config{Command: e.Command, Folder: e.Folder, Kills: *kills, Progress: e.Progress})
			return judged{r, *kills}, err
		}
	}))
}
