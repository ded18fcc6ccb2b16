package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/stack"
)

// runsFlags are what `cofferdam runs` is asked for: at most one of a run to show, to
// cancel and to tail.
type runsFlags struct{ dir, subject, show, cancel, tail string }

func listRuns() command {
	return command{
		name: "runs", short: "list what runs in a running stack; show, cancel or tail a run",
		about: `Without a run it lists those that are under way, whoever they belong to. A run
itself answers to its caller alone: --subject says who that is. --show prints its
status as JSON, --tail its canonical events, one JSON line each, until it ends, and
--cancel what was confirmed of the cancel.
`,
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var f runsFlags
			dataFlag(fs, &f.dir)
			fs.StringVar(&f.subject, "subject", stack.User, "`NAME` of whom to speak for")
			fs.StringVar(&f.show, "show", "", "`RUN` to show")
			fs.StringVar(&f.cancel, "cancel", "", "`RUN` to cancel")
			fs.StringVar(&f.tail, "tail", "", "`RUN` to follow, from its first event on")
			return func(ctx context.Context) error { return f.run(ctx, env) }
		},
	}
}

func (f runsFlags) run(ctx context.Context, env Env) error {
	asked := 0
	for _, id := range []string{f.show, f.cancel, f.tail} {
		if id != "" {
			asked++
		}
	}
	if asked > 1 {
		return usage("one of --show, --cancel and --tail")
	}
	d, err := datadir.Find(f.dir)
	if err != nil {
		return err
	}
	running, err := d.ReadRunning()
	if err != nil {
		return err
	}
	if asked == 0 {
		operator, err := client(d, running.Operator, stack.Operator)
		if err != nil {
			return err
		}
		defer operator.Close()
		return activeRuns(ctx, operator, env.Stdout)
	}
	api, err := client(d, running.API, f.subject)
	if err != nil {
		return err
	}
	defer api.Close()
	return f.one(ctx, api, env.Stdout)
}

// one does what is asked of a run.
func (f runsFlags) one(ctx context.Context, api *apiclient.Client, out io.Writer) error {
	var answer any
	var err error
	switch {
	case f.show != "":
		answer, err = api.Run(ctx, f.show)
	case f.cancel != "":
		answer, err = api.Cancel(ctx, f.cancel)
	default:
		ctx, stop := untilSignal(ctx)
		defer stop()
		return ended(ctx, api.Follow(ctx, f.tail, func(e apiclient.Event) error {
			_, err := fmt.Fprintf(out, "%s\n", e.Raw)
			return err
		}))
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// activeRuns lists the bindings that have a run.
func activeRuns(ctx context.Context, operator *apiclient.Client, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(w, "RUN\tAGENT\tEVENTS\tGENERATION\tBINDING"); err != nil {
		return err
	}
	err := eachBinding(ctx, operator, func(b apiclient.Binding) error {
		if b.Run == nil {
			return nil
		}
		_, err := fmt.Fprintf(w, "%s\t%s v%d\t%d\t%d\t%s\n", b.Run.RunID, b.AgentID, b.AgentVersion, b.Run.Events, b.Generation, b.BindingID)
		return err
	})
	if err != nil {
		return err
	}
	return w.Flush()
}
