package cli

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
	"cofferdam.dev/deploy/local/internal/stack"
)

// firstMessage makes the demo model call a tool; another model understands it too.
const firstMessage = "Please list the files that you can see.\n>>call fs.list_directory {\"path\":\".\"}"

func run() command {
	return command{
		name: "run", short: "start everything, show one conversation and three commands to go on with, and stay up",
		about: `The canonical events of the conversation, one a line, and the commands are on
stdout; the rest is told on stderr. It ends with SIGINT or SIGTERM.
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
					if err := show(ctx, s, env); err != nil {
						return err
					}
					<-ctx.Done()
					return nil
				}))
			}
		},
	}
}

// show plays one conversation and says how to go on.
func show(ctx context.Context, s *stack.Stack, env Env) error {
	info := s.Info()
	agent, conversation := info.Agents[0], "run-"+rand.Text()
	api, err := client(s.Dir(), info.API, stack.User)
	if err != nil {
		return err
	}
	defer api.Close()
	say(env.Stderr, "the public API answers at %s, that for operators at %s\nasking the agent %s to list the sample files:\n", info.API, info.Operator, agent)
	started, err := api.Start(ctx, apiclient.StartRequest{AgentID: agent, ConversationID: conversation, Message: firstMessage})
	if err != nil {
		return err
	}
	err = api.Follow(ctx, started.RunID, func(e apiclient.Event) error {
		_, err := fmt.Fprintf(env.Stdout, "%s\n", e.Raw)
		return err
	})
	if err != nil {
		return err
	}
	if err := keepToken(s.Dir()); err != nil {
		return err
	}
	if _, err := fmt.Fprint(env.Stdout, curls(s.Dir().Token(), info.API, agent, conversation, started.RunID)); err != nil {
		return err
	}
	if err := sayLink(env, s); err != nil {
		return err
	}
	say(env.Stderr, "\nOr talk to it: `cofferdam chat --data %s`. Ctrl-C ends everything.\n", s.Dir().Path())
	return nil
}

// keepToken writes the header line that curl is told to send.
func keepToken(d datadir.Dir) error {
	i, err := issuer.Load(d)
	if err != nil {
		return err
	}
	t, err := i.Token(issuer.Request{Subject: stack.User, TTL: issuer.MaxTTL})
	if err != nil {
		return err
	}
	return datadir.Write(d.Token(), issuer.Header(t))
}

// curls are three commands that work as they stand, in another terminal, for a day.
func curls(token, api, agent, conversation, runID string) string {
	return fmt.Sprintf(`
# Start another run of the conversation (its events are at the next route, with the run_id that this prints):
curl -sS -H @%[1]s -H 'Content-Type: application/json' \
  -d '{"agent_id":"%[3]s","conversation_id":"%[4]s","message":"What do you remember?"}' %[2]s/api/v1/runs

# Follow the events of the run above, as they are committed:
curl -sSN -H @%[1]s '%[2]s/api/v1/runs/%[5]s/stream?protocol=canonical'

# Talk to the agent over AG-UI, as HttpAgent does, in a conversation of its own:
curl -sSN -H @%[1]s -H 'Content-Type: application/json' -d '{"threadId":"%[4]s-agui","runId":"curl-1","state":{},"messages":[{"id":"m1","role":"user","content":">>call fs.read_text_file {\"path\":\"%[6]s\"}"}],"tools":[],"context":[],"forwardedProps":{}}' \
  %[2]s/api/v1/agents/%[3]s/agui
`, quote(token), api, agent, conversation, runID, stack.NotesFile)
}
