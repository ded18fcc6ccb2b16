package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"cofferdam.dev/pkg/cgroup"
	"cofferdam.dev/pkg/isolation"
)

// resolve makes the paths absolute.
func (c *Config) resolve() (err error) {
	for _, path := range []*string{&c.LauncherPath, &c.WorkerPath, &c.RunnerPath, &c.Sockets, &c.Dir, &c.LogDir} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if len(c.Profiles) == 0 {
		return errors.New("sandbox profiles: there are none")
	}
	if c.RunnerPath == "" && slices.ContainsFunc(c.Profiles, hosts) {
		return errors.New("a sandbox profile hosts a program, and no runner is named")
	}
	return nil
}

func hosts(p Profile) bool { return p.Program != nil }

// probe finds out which layers this machine does not allow.
func (p *Provider) probe(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if p.launcher, err = isolation.NewLauncher(p.cfg.LauncherPath); err != nil {
		return fmt.Errorf("sandbox launcher: %w", err)
	}
	var first uint32
	if os.Geteuid() == 0 {
		if p.ids, err = takeHostIDs(ctx); err != nil {
			return err
		}
		first = p.ids.base
	}
	layers, err := p.launcher.Probe(ctx, first)
	if err != nil {
		return fmt.Errorf("sandboxes cannot be started on this machine: %w", err)
	}
	p.without = isolation.LayersOf(layers)
	for _, m := range layers {
		p.weaknesses = append(p.weaknesses, m.String())
	}
	p.bounded = true
	for _, m := range p.cgroups.Missing() {
		p.weaknesses = append(p.weaknesses, m.String())
		p.bounded = p.bounded && m.Controller != cgroup.PIDs
	}
	if p.rootless() && slices.ContainsFunc(p.cfg.Profiles, hosts) {
		return errors.New("a sandbox profile hosts a program, and this machine allows no mount namespace to keep it away from the worker")
	}
	return nil
}

// fileDigest is sha256:… of a file.
func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
