package cli

import (
	"context"
	"errors"
	"flag"
)

func certify() command {
	return command{
		name: "certify", short: "check a harness adapter against the protocol (not implemented yet)",
		setup: func(*flag.FlagSet, Env) func(context.Context) error {
			return func(context.Context) error {
				return errors.New("not implemented yet: certification of adapters comes in a later version")
			}
		},
	}
}
