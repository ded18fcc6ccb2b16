package cli

import (
	"context"
	"crypto/rand"
	"flag"
	"os"
	"os/signal"

	"cofferdam.dev/deploy/local/internal/chat"
	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/stack"
)

func talk() command {
	return command{
		name: "chat", short: "talk to an agent of a running stack",
		about: `Each line of stdin is a message. The agent's text is on stdout, what it does with
tools on stderr. Where it asks, for a decision on a tool call or for a form, the
next lines are the answer. Ctrl-C during an answer of the agent cancels it; at the
prompt it ends the chat, as the end of stdin does, and a question stays open.
`,
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var dir, agent, conversation, subject string
			dataFlag(fs, &dir)
			fs.StringVar(&agent, "agent", stack.DemoAgent, "`ID` of the agent")
			fs.StringVar(&conversation, "conversation", "", "`ID` of a conversation to go on with (default a new one)")
			fs.StringVar(&subject, "subject", stack.User, "`NAME` of whom to speak for")
			return func(ctx context.Context) error {
				d, err := datadir.Find(dir)
				if err != nil {
					return err
				}
				running, err := d.ReadRunning()
				if err != nil {
					return err
				}
				api, err := client(d, running.API, subject)
				if err != nil {
					return err
				}
				defer api.Close()
				cfg := chat.Config{
					API: api, Agent: agent, Conversation: conversation, In: env.Stdin, Out: env.Stdout, People: env.Stderr,
					Interrupt: func(ctx context.Context) (context.Context, context.CancelFunc) {
						return signal.NotifyContext(ctx, os.Interrupt)
					},
				}
				if cfg.Conversation == "" {
					cfg.Conversation = "chat-" + rand.Text()
				}
				if terminal(env.Stdin) {
					cfg.Prompt = "> "
				}
				return chat.Run(ctx, cfg)
			}
		},
	}
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
