package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"cofferdam.dev/services/controlplane/internal/harnesses"
)

// describeTimeout bounds how long a worker's binary may take to say what it hosts.
const describeTimeout = 15 * time.Second

// Describe asks the worker's own binary what the harness of each profile takes and
// can do. It runs outside of any sandbox, as the binary is ours and reads nothing but
// the operator's configuration. A profile that cannot be described is left out and
// named in the log: its sandboxes work, and no agent can be made for it.
func (p *Provider) Describe(ctx context.Context) *harnesses.Catalogue {
	var entries []harnesses.Entry
	for i := range p.cfg.Profiles {
		profile := &p.cfg.Profiles[i]
		e, err := p.describe(ctx, profile)
		if err != nil {
			p.cfg.Logger.WarnContext(ctx, "the harness of a profile cannot be described", "profile", profile.Name, "harness", profile.Harness, "error", err.Error())
			continue
		}
		entries = append(entries, e)
	}
	return harnesses.New(entries...)
}

func (p *Provider) describe(ctx context.Context, profile *Profile) (harnesses.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	args := []string{"describe", "--harness", profile.Harness}
	if profile.HarnessConfig != "" {
		args = append(args, "--harness-config", profile.HarnessConfig)
	}
	cmd := exec.CommandContext(ctx, p.cfg.WorkerPath, args...) //nolint:gosec // the operator's own paths
	cmd.Env, cmd.WaitDelay = []string{}, time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return harnesses.Entry{}, err
	}
	if err := cmd.Start(); err != nil {
		return harnesses.Entry{}, err
	}
	raw, err := io.ReadAll(io.LimitReader(out, harnesses.MaxBytes+1))
	if err = errors.Join(err, out.Close(), cmd.Wait()); err != nil {
		return harnesses.Entry{}, fmt.Errorf("%s describe: %w", p.cfg.WorkerPath, err)
	}
	return harnesses.Parse(profile.Name, !profile.Disabled, profile.Harness, raw)
}
