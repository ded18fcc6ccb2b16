package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/stack"
)

// maxPages bounds what is listed.
const maxPages = 1000

func bindings() command {
	return command{
		name: "bindings", short: "list the conversations of a running stack, with lease, generation and sandbox",
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var dir string
			dataFlag(fs, &dir)
			return func(ctx context.Context) error {
				d, err := datadir.Find(dir)
				if err != nil {
					return err
				}
				running, err := d.ReadRunning()
				if err != nil {
					return err
				}
				operator, err := client(d, running.Operator, stack.Operator)
				if err != nil {
					return err
				}
				defer operator.Close()
				return table(ctx, operator, env.Stdout)
			}
		},
	}
}

func table(ctx context.Context, operator *apiclient.Client, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(w, "BINDING\tAGENT\tEPOCH\tGENERATION\tLEASE\tPROCESS\tRUN\tREVISION\tREFUSED\tCHANGED"); err != nil {
		return err
	}
	if err := eachBinding(ctx, operator, func(b apiclient.Binding) error { return row(w, b) }); err != nil {
		return err
	}
	return w.Flush()
}

// eachBinding gives every binding of a stack to do, in the order of their ids.
func eachBinding(ctx context.Context, operator *apiclient.Client, do func(apiclient.Binding) error) error {
	after := ""
	for range maxPages {
		page, next, err := operator.Bindings(ctx, after)
		if err != nil {
			return err
		}
		for _, b := range page {
			if err := do(b); err != nil {
				return err
			}
		}
		if after = next; next == "" || len(page) == 0 {
			break
		}
	}
	return nil
}

func row(w io.Writer, b apiclient.Binding) error {
	lease, process, run := "-", "-", "-"
	if b.Lease != nil {
		lease = b.Lease.State
	}
	if b.Sandbox != nil {
		process = strconv.Itoa(b.Sandbox.PID)
	}
	if b.Run != nil {
		run = b.Run.RunID
	}
	_, err := fmt.Fprintf(w, "%s\t%s v%d\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%s\n", b.BindingID, b.AgentID, b.AgentVersion, b.Epoch,
		b.Generation, lease, process, run, b.DurableRevision, len(b.Refusals), b.UpdatedAt.UTC().Format(time.RFC3339))
	return err
}
