package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/demo"
)

// installation is one that runs already, where somebody else has to kill.
type installation struct {
	server, operator, sample      string
	killWorker, restartModelProxy string
}

func (i *installation) flags(fs *flag.FlagSet) {
	fs.StringVar(&i.server, "server", "", "`URL` of the public API of an installation that runs already, on which the demo is played")
	fs.StringVar(&i.operator, "operator", "", "`URL` of its operators' API; with -server")
	fs.StringVar(&i.sample, "sample", "", "`FOLDER` with a copy of the sample files that its MCP server serves; with -server")
	fs.StringVar(&i.killWorker, "kill-worker", "", "`PROGRAM` that kills the worker of the binding on its standard input; with -server")
	fs.StringVar(&i.restartModelProxy, "restart-model-proxy", "", "`PROGRAM` that kills the model proxy and waits until it is back; with -server")
}

func (i *installation) used() bool { return *i != installation{} }

func (i *installation) play(ctx context.Context, dir string, env Env) error {
	for name, value := range map[string]string{
		"server": i.server, "operator": i.operator, "sample": i.sample, "data": dir,
		"kill-worker": i.killWorker, "restart-model-proxy": i.restartModelProxy,
	} {
		if value == "" {
			return usage("--%s: required to play on an installation that runs already", name)
		}
	}
	d, err := datadir.Find(dir)
	if err != nil {
		return err
	}
	return playWith(ctx, d, i.server, i.operator, env, demo.Config{
		KillWorker: func(ctx context.Context, b apiclient.Binding) (string, error) {
			shown, err := json.Marshal(b)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("instance %s", b.Sandbox.InstanceUID), program(ctx, i.killWorker, shown, env)
		},
		RestartModelProxy: func(ctx context.Context) error { return program(ctx, i.restartModelProxy, nil, env) },
		Sample:            i.sample,
	})
}

// program runs one of the operator's. What it says goes to people: stdout is the events'.
func program(ctx context.Context, path string, stdin []byte, env Env) error {
	cmd := exec.CommandContext(ctx, path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), env.Stderr, env.Stderr
	cmd.Env = os.Environ() // it needs what finds the cluster
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}
