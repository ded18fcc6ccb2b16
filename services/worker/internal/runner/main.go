//go:build linux

package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"cofferdam.dev/services/worker/internal/witness"
)

// Main is the command: it parses its arguments and serves until it is told to
// end. It returns the exit code.
func Main(args []string, stderr io.Writer) int {
	var cfg Config
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	flags.SetOutput(stderr)
	cfg.Flags(flags)
	hears := flags.Bool("witness", false, "read the trace of a worker that crashes from standard input, write why it does to standard output, and end")
	installAt := flags.String("install", "", "copy this program to `path`, make the folders of -home, -workspace and -temp, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "runner: takes no arguments, only flags") // to whom else?
		return 2
	}
	if *hears {
		small()
		if err := witness.Hear(os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(stderr, "runner:", err) // to whom else?
			return 1
		}
		return 0
	}
	if *installAt != "" {
		if err := install(*installAt, cfg); err != nil {
			_, _ = fmt.Fprintln(stderr, "runner:", err) // to whom else?
			return 1
		}
		return 0
	}
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: cfg.LogLevel}))
	if err := Harden(); err != nil {
		log.Error("runner cannot be hardened", "error", err)
		return 1
	}
	small()
	reserveThreads(spareThreads)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	// A log that nobody reads must not end the world. Not ignored: programs would
	// inherit that.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	defer signal.Stop(broken)
	if err := Run(ctx, cfg, log); err != nil {
		log.Error("runner ends", "error", err)
		return 1
	}
	return 0
}

// small keeps the runner's own use of the machine down: it copies bytes, and there
// are as many runners as sandboxes.
func small() {
	runtime.GOMAXPROCS(min(2, runtime.GOMAXPROCS(0)))
	debug.SetGCPercent(50)
}
