package cli

import (
	"context"
	"encoding/json"
	"flag"

	"cofferdam.dev/deploy/local/internal/stack"
)

func up() command {
	return command{
		name: "up", short: "start everything and keep it running until SIGINT or SIGTERM",
		about: `Once everything answers it prints one line of JSON on stdout:
{"ready":true,"api":"http://…","operator":"http://…","agents":["demo"]}
What happens until then, and afterwards, is told on stderr.
`,
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var cfg stack.Config
			startFlags(fs, &cfg, env)
			serveFlags(fs, &cfg)
			return func(ctx context.Context) error {
				cfg.Progress = env.Stderr
				ctx, stop := untilSignal(ctx)
				defer stop()
				return ended(ctx, stack.Run(ctx, cfg, func(ctx context.Context, s *stack.Stack) error {
					if err := json.NewEncoder(env.Stdout).Encode(s.Info()); err != nil {
						return err
					}
					if err := sayLink(env, s); err != nil {
						return err
					}
					<-ctx.Done()
					return nil
				}))
			}
		},
	}
}
