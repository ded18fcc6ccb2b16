package mcpstdio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"cofferdam.dev/pkg/isolation"
)

const (
	// DefaultFirstID is where the host ids of servers begin: right above those that
	// the process provider gives to sandboxes.
	DefaultFirstID = 0x7FFD_8000
	// Slots is for how many servers there are ids; each has isolation.IDsPerSandbox.
	Slots = 4095
	// probeSlot is the one that finds out what the machine allows.
	probeSlot = Slots
)

// WorldsConfig says what the worlds of a broker's servers are made of.
type WorldsConfig struct {
	// Launcher is the path of the program that makes worlds; empty is none.
	Launcher string
	// FirstID is the first of the host ids of servers; it counts where the broker is
	// root.
	FirstID uint32
	// AllowWeak starts servers also where the machine lacks layers.
	AllowWeak bool
	// Private are paths of the broker's that no server may have.
	Private []string
	Logger  *slog.Logger
}

// Worlds makes a World for each server. It is safe for concurrent use.
type Worlds struct {
	launcher *isolation.Launcher // nil where there is none
	firstID  uint32
	without  []isolation.Layer
	private  []string
	refusal  error
}

// Wanted is what a server's world has besides what all have.
type Wanted struct {
	// Slot is the server's own, below Slots.
	Slot int
	// RunAs is the uid and gid on the host; 0 is that of the slot.
	RunAs       uint32
	Read, Write []string
	Network     bool
}

// OpenWorlds finds out what the machine allows. That it does not allow all of it
// refuses servers, and not the broker.
func OpenWorlds(ctx context.Context, cfg WorldsConfig) *Worlds {
	w := &Worlds{}
	for _, p := range cfg.Private {
		if p != "" {
			w.private = append(w.private, resolved(p))
		}
	}
	if os.Geteuid() == 0 {
		w.firstID = cfg.FirstID
	}
	err := w.open(ctx, cfg)
	switch {
	case err != nil && cfg.AllowWeak:
		cfg.Logger.WarnContext(ctx, "servers over stdio run without isolation: they can read what the broker can", "reason", err.Error())
	case err != nil:
		w.refusal = fmt.Errorf("%w; --allow-weak-isolation starts servers over stdio without that", err)
	}
	return w
}

func (w *Worlds) open(ctx context.Context, cfg WorldsConfig) error {
	if cfg.Launcher == "" {
		return errors.New("--launcher does not name the program that isolates servers over stdio")
	}
	launcher, err := isolation.NewLauncher(cfg.Launcher)
	if err != nil {
		return err
	}
	probing := w.firstID
	if probing > 0 {
		probing += probeSlot * isolation.IDsPerSandbox
	}
	missing, err := launcher.Probe(ctx, probing)
	if err != nil {
		return errors.Join(err, launcher.Close())
	}
	w.launcher, w.without = launcher, isolation.LayersOf(missing)
	if os.Geteuid() != 0 { // it has no ids to give, and needs none: the mounts keep its files out of reach
		missing = slices.DeleteFunc(missing, func(m isolation.Missing) bool { return m.Layer == isolation.UID })
	}
	if len(missing) == 0 {
		return nil
	}
	for _, m := range missing {
		if cfg.AllowWeak {
			cfg.Logger.WarnContext(ctx, "servers over stdio lack an isolation layer", "missing_layer", string(m.Layer), "reason", m.Reason, "remedy", m.Remedy)
		}
	}
	if cfg.AllowWeak {
		return nil
	}
	return fmt.Errorf("this machine lacks isolation layers for servers over stdio: %v", missing)
}

// Of gives a server's world; nil is none, because the operator allowed that. The
// error says why the server must not run.
func (w *Worlds) Of(wanted Wanted) (*World, error) {
	if w.refusal != nil {
		return nil, w.refusal
	}
	if w.launcher == nil {
		return nil, nil //nolint:nilnil // said above
	}
	out := &World{
		Launcher: w.launcher, FirstID: w.firstID, Without: w.without, Read: wanted.Read, Write: wanted.Write, Network: wanted.Network,
	}
	switch {
	case wanted.RunAs != 0 && w.firstID == 0:
		return nil, ErrUID
	case wanted.RunAs != 0:
		out.FirstID = wanted.RunAs - isolation.WorkerID
	case w.firstID != 0:
		out.FirstID += uint32(wanted.Slot) * isolation.IDsPerSandbox //nolint:gosec // below Slots
	}
	for _, shown := range append(append(installed(), wanted.Read...), wanted.Write...) {
		for _, private := range w.private {
			if at := resolved(shown); within(private, at) || within(at, private) {
				return nil, fmt.Errorf("mcpstdio: %s would show the server something of %s, which is the broker's own", shown, private)
			}
		}
	}
	return out, nil
}

// Close gives the launcher up. Servers that run go on.
func (w *Worlds) Close() error {
	if w.launcher == nil {
		return nil
	}
	return w.launcher.Close()
}

// resolved is a path without links, as far as it exists.
func resolved(path string) string {
	if direct, err := filepath.EvalSymlinks(path); err == nil {
		return direct
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(resolved(dir), filepath.Base(path))
	}
	return filepath.Clean(path)
}
