package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/demo"
	"cofferdam.dev/deploy/local/internal/stack"
)

func demonstrate() command {
	return command{
		name: "demo", short: "play a conversation whose worker is killed between two turns, on a stack of its own, and exit",
		about: `The agent reads a sample file; then its worker and the model proxy are killed;
then it is asked what it remembers. On stdout there is one line of JSON for each
event, and nothing else:
{"turn":1,"binding_id":"…","epoch":0,"lease_generation":1,"event":{…}}
It exits with 0 only if all of it was seen to work.

With --server it is played on an installation that runs already, such as one on
Kubernetes. Callers' tokens are signed with the issuer of --data, as "cofferdam
cluster" made it. Who kills there is a program of yours: --kill-worker is run with
what operators see of the binding, in JSON, on its standard input (in a cluster
sandbox.instance_uid is the uid of the pod to delete); --restart-model-proxy returns
when the model proxy is back.
`,
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var cfg stack.Config
			var remote installation
			startFlags(fs, &cfg, env)
			remote.flags(fs)
			fs.StringVar(&cfg.DataDir, "data", "", "data `FOLDER` (default a temporary one that is removed afterwards)")
			return func(ctx context.Context) error {
				ctx, stop := untilSignal(ctx)
				defer stop()
				if remote.used() {
					return remote.play(ctx, cfg.DataDir, env)
				}
				cfg.Progress = env.Stderr
				cfg.Listen = "127.0.0.1:0"
				return withTemporary(&cfg, func() error {
					return stack.Run(ctx, cfg, func(ctx context.Context, s *stack.Stack) error { return playDemo(ctx, s, env) })
				})
			}
		},
	}
}

// withTemporary gives a configuration without a data folder one for the time of
// do. It stays where do fails, since the logs are in it.
func withTemporary(cfg *stack.Config, do func() error) error {
	if cfg.DataDir != "" {
		return do()
	}
	dir, err := os.MkdirTemp("", "cofferdam-demo-")
	if err != nil {
		return err
	}
	cfg.DataDir = dir
	if err := do(); err != nil {
		if os.Remove(dir) == nil { // it was not even used
			return err
		}
		return fmt.Errorf("%w\nthe data folder is kept: %s", err, dir)
	}
	return os.RemoveAll(dir)
}

func playDemo(ctx context.Context, s *stack.Stack, env Env) error {
	info := s.Info()
	return playWith(ctx, s.Dir(), info.API, info.Operator, env, demo.Config{
		KillWorker:        demo.KillProcess,
		RestartModelProxy: func(ctx context.Context) error { return s.Kill(ctx, stack.ModelProxy) },
		Sample:            s.Dir().Sample(),
	})
}

// playWith plays the demo at two APIs, with tokens of the issuer of a data folder.
func playWith(ctx context.Context, d datadir.Dir, api, operators string, env Env, cfg demo.Config) error {
	user, err := client(d, api, stack.User)
	if err != nil {
		return err
	}
	defer user.Close()
	operator, err := client(d, operators, stack.Operator)
	if err != nil {
		return err
	}
	defer operator.Close()
	cfg.API, cfg.Operator, cfg.Agent, cfg.File = user, operator, stack.DemoAgent, stack.NotesFile
	cfg.Out, cfg.People = env.Stdout, env.Stderr
	err = demo.Run(ctx, cfg)
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted before the end"), err)
	}
	return err
}
