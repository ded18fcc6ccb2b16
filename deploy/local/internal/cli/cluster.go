package cli

import (
	"context"
	"flag"

	"cofferdam.dev/deploy/local/internal/cluster"
	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/stack"
)

func prepareCluster() command {
	return command{
		name: "cluster", short: "prepare a development installation on Kubernetes: its keys, and who may do what",
		about: `It speaks to no API server. First, for ` + "`kubectl apply -f -`" + `:

  cofferdam cluster --print secrets

writes the Secrets, and the public key of the issuer of callers' tokens, whose private
key stays in the data folder for ` + "`cofferdam token`" + `. Then, when OpenFGA answers:

  cofferdam cluster --print settings --openfga-url URL --agents FILE --catalogue FILE

makes its store and its model, lets user-1 invoke the agents and tools of those files
and the subject operator see bindings, and prints the two settings that name them.
Both can be repeated and change nothing then. docs/kubernetes.md has the whole order.
`,
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var dir, what string
			access := cluster.Access{User: stack.User, Operator: stack.Operator}
			dataFlag(fs, &dir)
			fs.StringVar(&what, "print", "", "`WHAT` to print: secrets or settings (required)")
			fs.StringVar(&access.OpenFGA, "openfga-url", "", "`URL` of the HTTP API of OpenFGA; with settings")
			fs.StringVar(&access.Agents, "agents", "", "JSON `FILE` of the agents; with settings")
			fs.StringVar(&access.Catalogue, "catalogue", "", "JSON `FILE` of the MCP servers; with settings")
			return func(ctx context.Context) error {
				if what != "secrets" && what != "settings" {
					return usage("--print: secrets or settings")
				}
				if what == "settings" && (access.OpenFGA == "" || access.Agents == "" || access.Catalogue == "") {
					return usage("--openfga-url, --agents, --catalogue: required for settings")
				}
				d, err := datadir.Create(dir)
				if err != nil {
					return err
				}
				var out []byte
				if what == "secrets" {
					out, err = cluster.Secrets(d)
				} else {
					out, err = cluster.Authorize(ctx, d, access)
				}
				if err != nil {
					return err
				}
				_, err = env.Stdout.Write(out)
				return err
			}
		},
	}
}
