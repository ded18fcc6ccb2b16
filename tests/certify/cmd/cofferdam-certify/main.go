// Command cofferdam-certify is what `cofferdam certify` runs: see package certify. The
// flags are that command's, which documents them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"cofferdam.dev/tests/certify"
	"cofferdam.dev/tests/internal/command"
	"cofferdam.dev/tests/internal/forbidden"
	"cofferdam.dev/tests/internal/impostor"
)

// notCertified is the exit status where all was tried, and not everything has passed.
const notCertified = 3

// The first thread is the main goroutine's alone: see forbidden.Within.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // nothing that comes later is sure to be on it

func main() { os.Exit(run()) }

func run() int {
	pretends := len(os.Args) == 2 && os.Args[1] == impostor.Argument
	if !pretends && os.Geteuid() == 0 && os.Getenv(certify.NetworkVariable) == "" {
		// What is forbidden listens at the real addresses; the stack is on loopback anyway.
		fmt.Fprintln(os.Stderr, "network namespace:", forbidden.EnterNetwork(certify.NetworkVariable))
		return 1 // it returned, so it failed
	}
	ctx, stop := command.Until()
	defer stop()
	var err error
	if pretends {
		err = impostor.Serve(ctx, os.Stdin, os.Stdout)
	} else {
		err = certification(ctx)
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case err == certify.ErrNotCertified: //nolint:errorlint // nothing else went wrong
		return notCertified
	default:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}

func certification(ctx context.Context) (err error) {
	var cfg certify.Config
	var binDir, out, requirements string
	fs := flag.NewFlagSet("cofferdam-certify", flag.ContinueOnError)
	fs.StringVar(&binDir, "bin-dir", "", "")
	fs.StringVar(&cfg.Profiles, "sandbox-profiles", "", "")
	fs.StringVar(&cfg.Profile, "profile", "", "")
	fs.StringVar(&cfg.Harness, "harness", "", "")
	fs.StringVar(&requirements, "requirements", "", "")
	fs.IntVar(&cfg.Bindings, "bindings", 0, "")
	fs.BoolVar(&cfg.AllowWeakIsolation, "allow-weak-isolation", false, "")
	fs.StringVar(&out, "out", "", "")
	if err := fs.Parse(os.Args[1:]); err != nil {
		return err
	}
	if binDir == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		binDir = filepath.Dir(self)
	}
	if cfg.Command, err = filepath.Abs(filepath.Join(binDir, "cofferdam")); err != nil {
		return err
	}
	if cfg.Requirements, err = numbers(requirements); err != nil {
		return err
	}
	if cfg.Folder, err = os.MkdirTemp("", "cofferdam-cert-"); err != nil {
		return err
	}
	defer func() {
		if failed := os.RemoveAll(cfg.Folder); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	cfg.Out, cfg.Progress = os.Stdout, os.Stderr
	doc, err := certify.Run(ctx, cfg)
	if out != "" && (err == nil || errors.Is(err, certify.ErrNotCertified)) {
		if failed := doc.Write(out); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// numbers of a list such as 1,4,9.
func numbers(list string) (all []int, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("--requirements: %q is no number; want such as 1,4,9", part)
		}
		all = append(all, n)
	}
	return all, nil
}
