// Package cli is the command line of `cofferdam`: the whole of Cofferdam on one
// machine.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// Env is what a command works with.
type Env struct {
	// Stdin of chat.
	Stdin *os.File
	// Stdout is for machines, Stderr for people.
	Stdout, Stderr io.Writer
	// BinDir is where the programs are that up starts, unless --bin-dir says
	// otherwise.
	BinDir string
}

// command is one of the subcommands.
type command struct {
	name, short string
	// about is what its help says before the flags.
	about string
	// setup registers the flags and gives what runs with them.
	setup func(fs *flag.FlagSet, env Env) func(context.Context) error
}

func commands() []command {
	return []command{up(), run(), demonstrate(), talk(), listRuns(), token(), bindings(), prepareCluster(), certify()}
}

// errUsage marks errors that another command line would not have.
var errUsage = errors.New("usage")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...)
}

// Main runs the command line and gives the exit code: 0, 1 after a failure, 2 if
// the command line is wrong.
func Main(ctx context.Context, args []string, env Env) int {
	if len(args) == 0 {
		overview(env.Stderr)
		return exitUsage
	}
	if name := strings.TrimLeft(args[0], "-"); name == "help" || name == "h" {
		return help(args[1:], env)
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.main(ctx, args[1:], env)
		}
	}
	say(env.Stderr, "cofferdam: there is no command %q; `cofferdam help` lists them\n", args[0])
	return exitUsage
}

func (c command) main(ctx context.Context, args []string, env Env) int {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	do := c.setup(fs, env)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.help(env.Stdout)
		return exitOK
	case err != nil:
		err = usage("%w", err)
	case fs.NArg() > 0:
		err = usage("unexpected argument %q", fs.Arg(0))
	default:
		err = do(ctx)
	}
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errUsage) {
		say(env.Stderr, "cofferdam %s: %s\n`cofferdam %s -h` says more\n", c.name, explain(err), c.name)
		return exitUsage
	}
	say(env.Stderr, "cofferdam %s: %s\n", c.name, explain(err))
	return exitFailed
}

func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...) // nobody is left to tell
}

// untilSignal gives a context that ends with the first SIGINT or SIGTERM. The
// second one ends the process at once.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// ended turns the end that a signal asked for into none at all.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
