package controlplane

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/sandbox"
	"cofferdam.dev/services/controlplane/internal/sandbox/host"
	"cofferdam.dev/services/controlplane/internal/sandbox/process"
)

// Sandboxes are the settings of whoever owns the sandboxes of a machine: a control
// plane that is alone, or a sandbox host.
type Sandboxes struct {
	AllowWeakIsolation bool
	// LauncherPath, WorkerPath and RunnerPath are the programs that a sandbox is made
	// by and made of; the last is needed where a profile hosts a program.
	LauncherPath string
	WorkerPath   string
	RunnerPath   string
	WorkerIssuer string
	// SandboxProfiles is the operator's file of profiles; empty is the built-in one.
	SandboxProfiles string
	// SandboxSockets has the sockets of the services that are bound into sandboxes.
	SandboxSockets string
	// SandboxDir has the sockets at which workers listen.
	SandboxDir       string
	RegistrarAddress string
	WorkerLogs       string
	MaxSandboxes     int
	// MaxPerHarness is how many sandboxes of a harness may live at once.
	MaxPerHarness perHarness
	// Warm is how many sandboxes of the built-in profile are kept ready.
	Warm int
}

// perHarness is a flag: id=n, separated by commas.
type perHarness map[string]int

// String implements flag.Value.
func (p *perHarness) String() string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(*p)) {
		out = append(out, id+"="+strconv.Itoa((*p)[id]))
	}
	return strings.Join(out, ",")
}

// Set implements flag.Value.
func (p *perHarness) Set(value string) error {
	*p = perHarness{}
	for entry := range strings.SplitSeq(value, ",") {
		id, count, _ := strings.Cut(entry, "=")
		n, err := strconv.Atoi(count)
		if _, twice := (*p)[id]; err != nil || id == "" || twice || n < 0 || n > process.MostInstances {
			return fmt.Errorf("ID=N,…: each harness once, with 0 to %d", process.MostInstances)
		}
		(*p)[id] = n
	}
	return nil
}

func (s *Sandboxes) flags(fs *flag.FlagSet) {
	fs.BoolVar(&s.AllowWeakIsolation, "allow-weak-isolation", false, "start although isolation layers are missing; they are named in the log")
	fs.StringVar(&s.LauncherPath, "launcher", "", "path of the program that makes sandboxes")
	fs.StringVar(&s.WorkerPath, "worker", "", "path of the worker's binary")
	fs.StringVar(&s.RunnerPath, "runner", "", "path of the runner of hosted programs (default none)")
	fs.StringVar(&s.SandboxProfiles, "sandbox-profiles", "", "JSON `file` of sandbox profiles, at most 1 MiB, see docs/sandbox.md, which a cluster needs (default one named local, for the harness native)")
	fs.StringVar(&s.SandboxSockets, "sandbox-sockets", "", "`folder` with the sockets that workers find in their sandboxes: "+strings.Join(process.Services(), ", ")+", each with .sock")
	fs.StringVar(&s.SandboxDir, "sandbox-dir", "", "`folder` for the sockets of workers, of one control plane or sandbox host alone")
	fs.StringVar(&s.WorkerIssuer, "capability-issuer", "", "issuer of capabilities, which workers pin")
	fs.StringVar(&s.RegistrarAddress, "registrar", "", "address of this machine's identity registrar")
	fs.StringVar(&s.WorkerLogs, "worker-logs", "", "`folder` for the workers' logs")
	fs.IntVar(&s.MaxSandboxes, "max-sandboxes", process.DefaultMaxInstances, fmt.Sprintf("how many sandboxes may live at once, the warm ones among them; 1 to %d", process.MostInstances))
	fs.Var(&s.MaxPerHarness, "max-per-harness", "how many sandboxes of a harness may live at once, over all its profiles: `ID=N`,… (default --max-sandboxes for each)")
	fs.IntVar(&s.Warm, "warm", 0, "how many sandboxes of the built-in profile are kept ready, at most --max-sandboxes; a file of profiles says its own")
}

func (s *Sandboxes) validate() error {
	var errs []error
	for _, v := range []struct{ flag, value string }{
		{"launcher", s.LauncherPath},
		{"worker", s.WorkerPath},
		{"capability-issuer", s.WorkerIssuer},
		{"sandbox-sockets", s.SandboxSockets},
		{"sandbox-dir", s.SandboxDir},
		{"worker-logs", s.WorkerLogs},
	} {
		if v.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", v.flag))
		}
	}
	if !validAddress(s.RegistrarAddress) {
		errs = append(errs, errors.New("--registrar: required: https://host:port or unix:///path"))
	}
	if s.MaxSandboxes < 1 || s.MaxSandboxes > process.MostInstances {
		errs = append(errs, fmt.Errorf("--max-sandboxes: 1 to %d", process.MostInstances))
	}
	if s.Warm < 0 || s.Warm > s.MaxSandboxes {
		errs = append(errs, errors.New("--warm: 0 to --max-sandboxes"))
	}
	if s.Warm > 0 && s.SandboxProfiles != "" {
		errs = append(errs, errors.New("--warm: beside --sandbox-profiles each profile says it by itself"))
	}
	return errors.Join(errs...)
}

// provider makes the provider whose sandboxes end with this process. ready asks a
// worker once whether it is; nil takes one for ready that listens.
func (s *Sandboxes) provider(ctx context.Context, base *service.Base, rt *service.Runtime, ready func(context.Context, sandbox.Instance) error) (*process.Provider, error) {
	profiles := process.DefaultProfiles(s.Warm)
	if s.SandboxProfiles != "" {
		var err error
		if profiles, err = process.LoadProfiles(s.SandboxProfiles); err != nil {
			return nil, err
		}
	}
	registrar := endpoint(rt, s.RegistrarAddress, "registrar")
	p, err := process.New(ctx, process.Config{
		LauncherPath: s.LauncherPath, WorkerPath: s.WorkerPath, RunnerPath: s.RunnerPath,
		WorkerArgs: []string{"--issuer", s.WorkerIssuer, "--log-level", base.LogLevel},
		RunnerArgs: []string{"--log-level", base.LogLevel},
		Profiles:   profiles, Sockets: s.SandboxSockets, Dir: s.SandboxDir, LogDir: s.WorkerLogs, TrustDomain: rt.TrustDomain,
		Identities:   process.NewRegistrar(registrar.HTTPClient(rt.Source), registrar.BaseURL()),
		Ready:        ready,
		MaxInstances: s.MaxSandboxes, MaxPerHarness: s.MaxPerHarness, Logger: rt.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("sandbox provider: %w", err)
	}
	if err := s.accept(ctx, rt, p.Weaknesses()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// accept refuses what makes sandboxes weak unless the operator allows it.
func (s *Sandboxes) accept(ctx context.Context, rt *service.Runtime, weak []string) error {
	if len(weak) == 0 {
		return nil
	}
	missing := strings.Join(weak, "; ")
	if !s.AllowWeakIsolation {
		return fmt.Errorf("sandboxes lack layers of isolation: %s; --allow-weak-isolation starts without them", missing)
	}
	rt.Logger.WarnContext(ctx, "sandboxes are weak: isolation layers are missing", "missing", missing)
	return nil
}

// provider is what a control plane claims sandboxes from.
type provider interface {
	sandbox.Provider
	// Address is where a sandbox finds a service.
	Address(service string) string
	// Describe gives what each profile runs.
	Describe(ctx context.Context) *harnesses.Catalogue
}

// dialHost waits for the sandbox host.
func dialHost(ctx context.Context, cfg *Config, rt *service.Runtime) (*host.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	ep := rpc.Endpoint{Address: cfg.SandboxHost, ID: endpoint(rt, cfg.SandboxHost, sandboxHostService).ID}
	c, err := host.Dial(ctx, ep.HTTPClient(rt.Source), ep.BaseURL(), rt.Logger)
	if err != nil {
		return nil, fmt.Errorf("sandbox host: %w", err)
	}
	return c, nil
}
