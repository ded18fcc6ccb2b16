package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"cofferdam.dev/services/worker/internal/acp"
	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/loopback"
	"cofferdam.dev/services/worker/internal/native"
	"cofferdam.dev/services/worker/internal/runnerclient"
	"cofferdam.dev/services/worker/internal/scripted"
	"cofferdam.dev/services/worker/internal/stdio"
)

// maxHarnessConfig bounds the operator's configuration of a harness, in bytes.
const maxHarnessConfig = 256 << 10

// hosting is an adapter, and the world of the program that it hosts.
type hosting struct {
	harness.Adapter
	// close gives the world up; the sandbox ends it.
	close func() error
	// lost is closed when the world is gone; nil where there is none.
	lost <-chan struct{}
}

// newAdapter makes the adapter that this worker hosts.
func newAdapter(ctx context.Context, cfg *Config, logger *slog.Logger) (hosting, error) {
	if !hosts(cfg.Harness) {
		a, err := ownAdapter(cfg)
		return hosting{Adapter: a, close: func() error { return nil }}, err
	}
	preset, err := os.Open(cfg.HarnessConfig)
	if err != nil {
		return hosting{}, fmt.Errorf("--harness-config: %w", err)
	}
	defer preset.Close()
	world, err := runnerclient.Dial(ctx, cfg.Runner)
	if err != nil {
		return hosting{}, fmt.Errorf("--runner: %w", err)
	}
	a, err := hostedAdapter(cfg, preset, world, logger)
	if err != nil {
		return hosting{}, errors.Join(fmt.Errorf("--harness-config: %w", err), world.Close())
	}
	return hosting{Adapter: a, close: world.Close, lost: world.Gone()}, nil
}

// ownAdapter is one whose harness is code of the worker itself.
func ownAdapter(cfg *Config) (harness.Adapter, error) {
	registry, err := harness.NewRegistry(native.New(native.Config{Workspace: cfg.Workspace}), scripted.New())
	if err != nil {
		return nil, err
	}
	return registry.Get(cfg.Harness)
}

// hosts reports whether a harness is a program in a world of its own.
func hosts(id string) bool { return id == acp.ID || id == stdio.ID }

func hostedAdapter(cfg *Config, preset io.Reader, world hosted.World, logger *slog.Logger) (harness.Adapter, error) {
	if cfg.Harness == acp.ID {
		p, err := acp.DecodePreset(preset)
		if err != nil {
			return nil, err
		}
		return acp.New(acp.Config{World: world, Preset: p, Workspace: cfg.Workspace, Logger: logger}), nil
	}
	raw, err := io.ReadAll(io.LimitReader(preset, maxHarnessConfig+1))
	if err != nil {
		return nil, err
	}
	p, err := stdio.ParsePreset(raw)
	if err != nil {
		return nil, err
	}
	return stdio.New(stdio.Config{World: world, Preset: p, Workspace: cfg.Workspace, Endpoint: modelEndpoint{logger}, Logger: logger})
}

// modelEndpoint lets a program reach the model on the loopback of its world.
type modelEndpoint struct{ logger *slog.Logger }

// Open implements stdio.Endpoint. Each run has an endpoint of its own, which is
// gone when the run is.
func (e modelEndpoint) Open(ctx context.Context, m harness.Model, l harness.Limits) (stdio.Access, error) {
	s, err := loopback.New(ctx, loopback.Config{Logger: e.logger})
	if err != nil {
		return stdio.Access{}, err
	}
	run, err := s.Begin(ctx, loopback.RunConfig{Tag: "program", Model: m, Limits: l})
	if err != nil {
		s.Close()
		return stdio.Access{}, err
	}
	at := s.Renew()
	return stdio.Access{
		BaseURL: at.ModelBaseURLV1, RootURL: at.ModelBaseURL, Key: at.ModelKey,
		Close: func() { run.Close(); s.Close() },
	}, nil
}
