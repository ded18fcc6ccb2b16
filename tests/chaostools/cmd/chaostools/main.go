// Command chaostools is `make chaos-tools`: see package chaostools. The last line of its stdout
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

	"cofferdam.dev/tests/chaostools"
	"cofferdam.dev/tests/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "chaos-tools:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("chaos-tools", flag.ContinueOnError)
	fs.SetOutput(stderr)
	calls := fs.Int("calls", 1000, "how many calls")
	if err := fs.Parse(args); err != nil {
		return err
	}
	command, err := stack.Command()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "cofferdam-chaos-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	r, err := chaostools.Run(ctx, chaostools.Config{Command: command, Folder: folder, Calls: *calls, Progress: stderr})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return err
	}
	return r.Verdict()
}
