package cli

import (
	"context"
	"flag"
	"fmt"
	"time"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
)

func token() command {
	return command{
		name: "token", short: "sign a bearer token for a caller",
		about: `Without --out it prints the token. With --out it writes a whole header line, for
curl -H @FILE. The user user-1 may invoke the agents; the subject operator may use
the operators' API.
`,
		setup: func(fs *flag.FlagSet, env Env) func(context.Context) error {
			var dir, out string
			var r issuer.Request
			dataFlag(fs, &dir)
			fs.StringVar(&r.Subject, "subject", "", "`NAME` of who calls (required)")
			fs.StringVar(&r.Organization, "org", issuer.Organization, "`NAME` of the organization that the caller belongs to")
			fs.DurationVar(&r.TTL, "ttl", issuer.DefaultTTL, "`DURATION` that the token lives, at most 24h")
			fs.StringVar(&out, "out", "", "`FILE` to write, with mode 0600, instead of stdout")
			return func(context.Context) error {
				if r.Subject == "" {
					return usage("--subject: required")
				}
				if r.TTL < time.Second || r.TTL > issuer.MaxTTL {
					return usage("--ttl: 1s to %v", issuer.MaxTTL)
				}
				d, err := datadir.Find(dir)
				if err != nil {
					return err
				}
				i, err := issuer.Load(d)
				if err != nil {
					return err
				}
				t, err := i.Token(r)
				if err != nil {
					return err
				}
				if out != "" {
					return datadir.Write(out, issuer.Header(t))
				}
				_, err = fmt.Fprintln(env.Stdout, t)
				return err
			}
		},
	}
}
