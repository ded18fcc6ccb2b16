package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"cofferdam.dev/deploy/local/internal/demo"
	"cofferdam.dev/deploy/local/internal/stack"
)

func demonstrate() command {
	return command{
		name: "demo", short: "start everything, play a conversation whose worker is killed between two turns, and exit",
		about: `The agent reads a sample file; then its worker and the model proxy are killed;
then it is asked what it remembers. On stdout there is one line of JSON for each
event, and nothing else:
{"turn":1,"binding_id":"…","epoch":0,"lease_generation":1,"event":{…}}
It exits with 0 only if all of it was seen to work.
`,
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var cfg stack.Config
			startFlags(fs, &cfg, env)
			fs.StringVar(&cfg.DataDir, "data", "", "data `FOLDER` (default a temporary one that is removed afterwards)")
			return func(ctx context.Context) error {
				ctx, stop := untilSignal(ctx)
				defer stop()
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
	user, err := client(s.Dir(), info.API, stack.User)
	if err != nil {
		return err
	}
	defer user.Close()
	operator, err := client(s.Dir(), info.Operator, stack.Operator)
	if err != nil {
		return err
	}
	defer operator.Close()
	err = demo.Run(ctx, demo.Config{
		API: user, Operator: operator, Agent: stack.DemoAgent,
		RestartModelProxy: func(ctx context.Context) error { return s.Kill(ctx, stack.ModelProxy) },
		Sample:            s.Dir().Sample(), File: stack.NotesFile,
		Out: env.Stdout, People: env.Stderr,
	})
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted before the end"), err)
	}
	return err
}
