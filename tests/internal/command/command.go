// Package command is what the commands of `make` that run a stack and end with one
// line of figures have in common.
package command

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
)

// Env is what a run is given.
type Env struct {
	// Command is the path of cofferdam, and Folder where its data go.
	Command, Folder string
	// Progress takes lines for people.
	Progress io.Writer
}

// Report is what a run gives: the last line of stdout, as JSON.
type Report interface {
	// Verdict says what did not hold.
	Verdict() error
}

// Until gives a context that ends when the program is to: with SIGINT, SIGTERM, or
// SIGHUP when its terminal goes. A reader of stdout or stderr that went away is an error
// of the next write, and not the end of the program: it has processes to end, and a
// folder to remove.
func Until() (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// Main runs a command until SIGINT, SIGTERM or SIGHUP and gives the exit status. find gives
// the path of cofferdam, as stack.Command does. setup registers the flags, and gives
// what runs once they are parsed; the report is whole where its error is nil.
func Main(name string, find func() (string, error), setup func(*flag.FlagSet) func(context.Context, Env) (Report, error)) int {
	ctx, stop := Until()
	defer stop()
	if err := run(ctx, name, find, setup); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, name string, find func() (string, error), setup func(*flag.FlagSet) func(context.Context, Env) (Report, error)) (err error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	do := setup(fs)
	if err := fs.Parse(os.Args[1:]); err != nil {
		return err
	}
	e := Env{Progress: os.Stderr}
	if e.Command, err = find(); err != nil {
		return err
	}
	if e.Folder, err = os.MkdirTemp("", "cofferdam-"+name+"-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(e.Folder)) }()
	r, err := do(ctx, e)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	return r.Verdict()
}
