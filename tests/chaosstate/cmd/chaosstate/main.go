// Command chaosstate is `make chaos-state`: see package chaosstate. The last line of its stdout
// is the report.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"cofferdam.dev/tests/chaosstate"
	"cofferdam.dev/tests/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos-state:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("chaos-state", flag.ContinueOnError)
	fs.SetOutput(stderr)
	kills := fs.Int("kills", 1000, "how many processes are killed at least")
	if err := fs.Parse(args); err != nil {
		return err
	}
	command, err := stack.FailpointCommand()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "cofferdam-kill-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	r, err := chaosstate.Run(ctx, chaosstate.Config{Command: command, Folder: folder, Kills: *kills, Progress: stderr})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return err
	}
	return r.Verdict(*kills)
}
