package cli

import (
	"flag"
	"io"
)

func overview(w io.Writer) {
	say(w, `Cofferdam on one machine: a control plane that gives each conversation with an
agent a disposable sandbox, and all services that it needs.

  cofferdam COMMAND [flags]

`)
	for _, c := range commands() {
		say(w, "  %-10s %s\n", c.name, c.short)
	}
	say(w, "  %-10s %s\n\n`cofferdam COMMAND -h` lists the flags of a command.\n", "help", "show this, or the flags of a command")
}

func help(args []string, env Env) int {
	if len(args) == 0 {
		overview(env.Stdout)
		return exitOK
	}
	for _, c := range commands() {
		if c.name == args[0] {
			c.help(env.Stdout)
			return exitOK
		}
	}
	say(env.Stderr, "cofferdam help: there is no command %q\n", args[0])
	return exitUsage
}

func (c command) help(w io.Writer) {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(w)
	c.setup(fs, Env{})
	say(w, "cofferdam %s [flags]: %s.\n", c.name, c.short)
	if c.about != "" {
		say(w, "\n%s", c.about)
	}
	flags := 0
	fs.VisitAll(func(*flag.Flag) { flags++ })
	if flags > 0 {
		say(w, "\nFlags:\n")
		fs.PrintDefaults()
	}
}
