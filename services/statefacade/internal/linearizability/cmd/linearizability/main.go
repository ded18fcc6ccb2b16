// Command linearizability is `make linearizability`: see package linearizability.
// Its stdout has one line of JSON for each back end, the last one of each the
// report.
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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"cofferdam.dev/pkg/mongodbstore/mongodbstoretest"
	"cofferdam.dev/services/statefacade/internal/linearizability"
)

// serveArgument as the only one makes this program a client process.
const serveArgument = "clients"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == serveArgument {
		if err := linearizability.Serve(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "linearizability:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "linearizability:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("linearizability", flag.ContinueOnError)
	fs.SetOutput(stderr)
	ops := fs.Int("ops", 10_000, "how many operations on each back end")
	backends := fs.String("backends", linearizability.SQLite+","+linearizability.MongoDB, "which back ends, separated by commas")
	seed := fs.Uint64("seed", uint64(time.Now().UnixNano()), "of what the clients do, and of what gets lost")
	if err := fs.Parse(args); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "cofferdam-linearizability-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	server, closeServer, err := mongodbstoretest.Start(ctx, folder, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeServer()) }()
	_, _ = fmt.Fprintf(stderr, "seed %d\n", *seed)
	n := 0
	var errs []error
	for _, b := range []struct {
		name  string
		store func() (string, error)
	}{
		{linearizability.SQLite, func() (string, error) { n++; return filepath.Join(folder, fmt.Sprintf("%d.db", n)), nil }},
		{linearizability.MongoDB, func() (string, error) { return mongodbstoretest.NewDatabase(server) }},
	} {
		if !slices.Contains(strings.Split(*backends, ","), b.name) {
			continue
		}
		r, err := linearizability.Run(ctx, linearizability.Config{
			Backend: b.name, Store: b.store, Ops: *ops, Command: []string{self, serveArgument}, Seed: *seed, People: stderr,
		})
		if err != nil {
			return err
		}
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			return err
		}
		errs = append(errs, r.Verdict())
	}
	return errors.Join(errs...)
}
