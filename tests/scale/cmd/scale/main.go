// Command scale is `make scale`: see package scale. The last line of its stdout
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

	"cofferdam.dev/tests/scale"
	"cofferdam.dev/tests/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("scale", flag.ContinueOnError)
	fs.SetOutput(stderr)
	bindings := fs.Int("bindings", 1000, "how many conversations at once")
	claims := fs.Int("claims", 50, "how many claims are timed, warm and cold each")
	if err := fs.Parse(args); err != nil {
		return err
	}
	command, err := stack.Command()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "cofferdam-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	r, err := scale.Run(ctx, scale.Config{Command: command, Folder: folder, Bindings: *bindings, Claims: *claims, Progress: stderr})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(stdout).Encode(r); err != nil {
		return err
	}
	return r.Verdict()
}
