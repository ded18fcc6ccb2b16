// Command cofferdam-openfga is the OpenFGA server of the one-machine stack.
//
// OpenFGA publishes its server as a library. This program puts it on loopback
// with a SQLite file, one preshared key and nothing else: no gRPC port, no
// playground, no profiler, no telemetry, no cache. A production deployment
// points Cofferdam at its own OpenFGA instead.
//
// Once it answers it prints one line of JSON on stdout,
//
//	{"ready":true,"http":"http://127.0.0.1:PORT"}
//
// and it logs on stderr. It ends on SIGTERM or SIGINT, with a bound of
// shutdownTimeout for requests under way.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "cofferdam-openfga:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "cofferdam-openfga:", err)
		os.Exit(1)
	}
}
