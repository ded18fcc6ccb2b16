package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	// certifyProgram stands beside the services. It is a program of its own because it
	// speaks to all of them as their clients do, which this one does not.
	certifyProgram = "cofferdam-certify"
	// notCertified is the exit status with which it says that all was tried, and that not
	// everything has passed.
	notCertified = 3
	// certifyGrace is how long it may take to end its stack once it was asked to.
	certifyGrace = 30 * time.Second
)

// certification is what certify is asked for.
type certification struct {
	binDir, profiles, profile, harness, requirements, out string

	bindings  int
	allowWeak bool
}

func certify() command {
	return command{
		name: "certify", short: "check a harness adapter against the Sandbox Worker Protocol v1, on a stack of its own",
		about: `It starts a stack in a temporary folder and checks the protocol's fifteen
requirements on it. On stdout there is one line of JSON for each requirement,
{"requirement":1,"title":"…","result":"passed","checks":[…]}
with the result passed, failed, not_applicable or not_run, and a closing line
with the adapter, its version, the image digest and "certified". It is true, and
the exit status 0, only if all fifteen requirements have passed in this very run.
Most checks need root. docs/certification.md says what is checked.
`,
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var c certification
			fs.StringVar(&c.profile, "profile", "", "`NAME` of the sandbox profile that is tried")
			fs.StringVar(&c.harness, "harness", "", "`ID` of the harness that is tried: native or scripted, or that of a profile (default native without --sandbox-profiles)")
			fs.StringVar(&c.profiles, "sandbox-profiles", "", "JSON `FILE` of sandbox profiles, {\"profiles\": […]}, one of which is tried")
			fs.StringVar(&c.requirements, "requirements", "", "`LIST` of the requirements to check, such as 1,4,9; the others are not_run (default all)")
			fs.IntVar(&c.bindings, "bindings", 0, "`N` conversations at once where that is what is tried; the protocol asks for 1000 (default 4)")
			fs.StringVar(&c.out, "out", "", "`FILE` for the report, one JSON document")
			fs.StringVar(&c.binDir, "bin-dir", env.BinDir, "`FOLDER` with the programs of the services (default the one of this program)")
			fs.BoolVar(&c.allowWeak, "allow-weak-isolation", false, "try it although this machine does not allow all layers of isolation")
			if env.BinDir != "" {
				fs.Lookup("bin-dir").DefValue = ""
			}
			return func(ctx context.Context) error {
				ctx, stop := untilSignal(ctx)
				defer stop()
				return c.run(ctx, env)
			}
		},
	}
}

func (c certification) run(ctx context.Context, env Env) error {
	if c.bindings < 0 || c.bindings == 1 {
		return usage("--bindings: at least 2")
	}
	program := filepath.Join(c.binDir, certifyProgram)
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("--bin-dir: %w: run `make build`, or name the folder that has it", err)
	}
	args := []string{"--bin-dir", c.binDir, "--bindings", strconv.Itoa(c.bindings)}
	for _, f := range []struct{ flag, value string }{
		{"--profile", c.profile},
		{"--harness", c.harness},
		{"--sandbox-profiles", c.profiles},
		{"--requirements", c.requirements},
		{"--out", c.out},
	} {
		if f.value != "" {
			args = append(args, f.flag, f.value)
		}
	}
	if c.allowWeak {
		args = append(args, "--allow-weak-isolation")
	}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // of the folder that the operator named
	cmd.Stdout, cmd.Stderr = env.Stdout, env.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = certifyGrace
	err := cmd.Run()
	var status *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted before the end")
	case !errors.As(err, &status):
		return err
	case status.ExitCode() == notCertified:
		return errors.New("not certified: the closing line has the result of each requirement")
	default:
		return errors.New("it could not be carried out, for the reason above")
	}
}
