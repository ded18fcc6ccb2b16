// Command repocheck does what the Makefile needs and Go's own tools lack.
//
//	repocheck deps             check versions, arrows between modules and licences
//	repocheck bench            benchmark output on stdin; the same and a JSON line on stdout
//	repocheck fuzz -time 10s   run every fuzz target of the workspace
//	repocheck leaks            check that all tests look for goroutines that they leave
//	repocheck demo             fail unless stdin is what `make demo` promises
//
// It runs at the root of the workspace and exits 1 when a check fails. What it
// says for people goes to stderr; stdout ends with a JSON line of figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "repocheck:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: repocheck deps|bench|fuzz|leaks|demo")
	}
	flags := flag.NewFlagSet("repocheck "+args[0], flag.ContinueOnError)
	fuzzTime := flags.Duration("time", 10*time.Second, "how long to fuzz each target")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	switch args[0] {
	case "deps":
		return checkDeps(ctx, os.Stdout)
	case "bench":
		return summarizeBenchmarks(os.Stdin, os.Stdout)
	case "fuzz":
		return fuzzAll(ctx, *fuzzTime, os.Stdout)
	case "leaks":
		return checkLeaks(ctx, os.Stdout)
	case "demo":
		return checkDemo(os.Stdin, os.Stdout)
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
}
