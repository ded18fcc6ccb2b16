package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// DefaultProfile is the name of the profile that is there unless an operator
// brings others.
const DefaultProfile = "local"

// Bounds of the values of a profile.
const (
	maxProfiles  = 64
	maxReadOnly  = 32
	minMemoryMiB = 48
	maxMemoryMiB = 1 << 20
	minPIDs      = 24
	maxPIDs      = 32 << 10
	minCPUs      = 0.01
	maxCPUs      = 1024
	maxLifetime  = 30 * 24 * time.Hour
)

var (
	profilePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	harnessPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)
)

// Profile is a kind of sandbox, by the operator's name for it.
type Profile struct {
	Name string `json:"name"`
	// Harness is the id of the one harness that runs in it.
	Harness string `json:"harness"`
	// HarnessConfig is a file of the operator that the harness is given, by its
	// path on the host; it is bound in read-only. Workers are other users, so others
	// must be able to read it. Empty is none.
	HarnessConfig string `json:"harness_config,omitempty"`
	// Program is the nested world of a hosted agent program; nil is none.
	Program *ProgramWorld `json:"program,omitempty"`
	Limits  Limits        `json:"limits,omitzero"`
	// Warm is how many instances are kept ready for claims.
	Warm int `json:"warm,omitempty"`
	// Disabled switches the profile off: nothing is made of it, and a claim is told to
	// come again.
	Disabled bool `json:"disabled,omitempty"`
}

// ProgramWorld is what a hosted agent program finds beside its own folders.
type ProgramWorld struct {
	// ReadOnlyPaths are files and folders of the host that the program sees under
	// the same path, such as /usr, /lib, /lib64 and /opt/agents.
	ReadOnlyPaths []string      `json:"read_only_paths,omitempty"`
	Limits        ProgramLimits `json:"limits,omitzero"`
}

// Limits bound a sandbox as a whole. A zero is the default.
type Limits struct {
	// MemoryMiB includes the files of the workspace. 512 by default.
	MemoryMiB int64 `json:"memory_mib,omitempty"`
	// PIDs counts threads too. 512 by default.
	PIDs int64 `json:"pids,omitempty"`
	// CPUs is in processors; 2 by default.
	CPUs float64 `json:"cpus,omitempty"`
	// WorkspaceMiB is what the files of the workspace may take; 128 by default. The
	// home and temporary folders of a hosted program may take as much again each.
	WorkspaceMiB int64 `json:"workspace_mib,omitempty"`
	// LifetimeSeconds is how long an instance may live after it was claimed; a day
	// by default.
	LifetimeSeconds int64 `json:"lifetime_seconds,omitempty"`
}

// ProgramLimits bound a hosted program inside the limits of its sandbox, so that
// the worker beside it can go on. A zero is the default.
type ProgramLimits struct {
	// MemoryMiB is the sandbox's less 64 by default.
	MemoryMiB int64 `json:"memory_mib,omitempty"`
	// PIDs are three quarters of the sandbox's by default, or what worker and runner
	// leave of it. The runner's own threads come on top.
	PIDs int64 `json:"pids,omitempty"`
}

// What worker and runner need beside a program. Who cannot make another thread dies
// of it, so these are more than they were ever seen to have.
const (
	workerMiB  = 64
	workerPIDs = 24
	runnerPIDs = 24
)

// groupPIDs is how many processes and threads a program and its runner have
// together.
func (l ProgramLimits) groupPIDs() int64 { return l.PIDs + runnerPIDs }

func (l Limits) lifetime() time.Duration { return time.Duration(l.LifetimeSeconds) * time.Second }

// DefaultProfiles are those that are there unless an operator brings others.
func DefaultProfiles(warm int) []Profile {
	return []Profile{Profile{Name: DefaultProfile, Harness: "native", Warm: warm}.withDefaults()}
}

// LoadProfiles reads {"profiles": […]} from a JSON file of at most 1 MiB. The
// paths in it must be absolute.
func LoadProfiles(path string) ([]Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sandbox profiles: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, strictjson.DefaultMaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("sandbox profiles: %w", err)
	}
	profiles, err := ParseProfiles(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return profiles, nil
}

// ParseProfiles is LoadProfiles on what stands in the file. The error names
// everything that is wrong.
func ParseProfiles(raw []byte) ([]Profile, error) {
	var doc struct {
		Profiles []Profile `json:"profiles"`
	}
	if err := strictjson.Unmarshal(raw, &doc, strictjson.Options{}); err != nil {
		return nil, fmt.Errorf("sandbox profiles: %w", err)
	}
	var errs []error
	if n := len(doc.Profiles); n < 1 || n > maxProfiles {
		errs = append(errs, fmt.Errorf("profiles: 1 to %d of them", maxProfiles))
	}
	seen := map[string]bool{}
	for i, p := range doc.Profiles {
		p = p.withDefaults()
		doc.Profiles[i] = p
		if err := p.validate(); err != nil {
			errs = append(errs, fmt.Errorf("profiles[%d]: %w", i, err))
		}
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("profiles[%d]: name %q stands twice", i, p.Name))
		}
		seen[p.Name] = true
	}
	return doc.Profiles, errors.Join(errs...)
}

func (p Profile) withDefaults() Profile {
	l := &p.Limits
	orDefault(&l.MemoryMiB, 512)
	orDefault(&l.PIDs, 512)
	orDefault(&l.CPUs, 2)
	orDefault(&l.WorkspaceMiB, 128)
	orDefault(&l.LifetimeSeconds, int64(24*time.Hour/time.Second))
	if p.Program != nil {
		world := *p.Program
		orDefault(&world.Limits.MemoryMiB, l.MemoryMiB-workerMiB)
		orDefault(&world.Limits.PIDs, min(l.PIDs*3/4, l.PIDs-workerPIDs-runnerPIDs))
		p.Program = &world
	}
	return p
}

func orDefault[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

func (p Profile) validate() error {
	l := p.Limits
	var errs []error
	for _, rule := range []struct {
		ok   bool
		text string
	}{
		{profilePattern.MatchString(p.Name), "name: 1 to 64 characters of [A-Za-z0-9._-]"},
		{harnessPattern.MatchString(p.Harness), "harness: 2 to 64 characters of [a-z0-9_], a letter first"},
		{p.HarnessConfig == "" || cleanPath(p.HarnessConfig), "harness_config: an absolute path without . and .."},
		{p.Warm >= 0, "warm: not negative"},
		{l.MemoryMiB >= minMemoryMiB && l.MemoryMiB <= maxMemoryMiB, "limits.memory_mib: 48 to 1048576"},
		{l.PIDs >= minPIDs && l.PIDs <= maxPIDs, "limits.pids: 24 to 32768"},
		{l.CPUs >= minCPUs && l.CPUs <= maxCPUs, "limits.cpus: 0.01 to 1024"},
		{l.WorkspaceMiB >= 1 && l.WorkspaceMiB < l.MemoryMiB, "limits.workspace_mib: at least 1, and less than memory_mib, which it is taken from"},
		{l.LifetimeSeconds >= 1 && l.lifetime() <= maxLifetime, "limits.lifetime_seconds: 1 to 2592000"},
	} {
		if !rule.ok {
			errs = append(errs, errors.New(rule.text))
		}
	}
	if p.Program != nil {
		errs = append(errs, p.Program.validate(l))
	}
	return errors.Join(errs...)
}

func (w *ProgramWorld) validate(l Limits) error {
	var errs []error
	if w.Limits.MemoryMiB < 1 || w.Limits.MemoryMiB >= l.MemoryMiB {
		errs = append(errs, errors.New("program.limits.memory_mib: at least 1, and less than limits.memory_mib"))
	}
	if w.Limits.PIDs < 1 || w.Limits.PIDs > l.PIDs-workerPIDs-runnerPIDs {
		errs = append(errs, errors.New("program.limits.pids: at least 1, and 48 less than limits.pids, which worker and runner need"))
	}
	if len(w.ReadOnlyPaths) > maxReadOnly {
		errs = append(errs, fmt.Errorf("program.read_only_paths: at most %d", maxReadOnly))
	}
	for _, path := range w.ReadOnlyPaths {
		if !cleanPath(path) || reserved(path) {
			errs = append(errs, fmt.Errorf("program.read_only_paths: %q: an absolute path without . and .., and none that the sandbox makes itself", path))
		}
	}
	return errors.Join(errs...)
}

func cleanPath(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }

// reserved reports whether a sandbox has something of its own at, below or above
// a path.
func reserved(path string) bool {
	within := func(path, folder string) bool {
		return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
	}
	own := []string{"/proc", "/sys", "/dev", "/run", "/tmp", workspaceInside, homeInside, binariesInside}
	for _, f := range programFiles() {
		own = append(own, f.Path)
	}
	return slices.ContainsFunc(own, func(o string) bool { return within(path, o) || within(o, path) })
}

// enabledAgain is how long to wait for a profile that is switched off, which takes a
// person and a new start.
const enabledAgain = time.Minute

var errDisabled = errors.New("the operator has switched the sandbox profile off")

var errNoProfile = errors.New("no sandbox profile has this name and runs this harness: see --sandbox-profiles")

// profileOf gives the profile of a claim. A claim without one gets the first that
// runs its harness and is not switched off.
func (p *Provider) profileOf(c sandbox.Claim) (*Profile, error) {
	off := false
	for i := range p.cfg.Profiles {
		profile := &p.cfg.Profiles[i]
		switch {
		case profile.Harness != c.Harness || c.Profile != "" && c.Profile != profile.Name:
		case profile.Disabled:
			off = true
		default:
			return profile, nil
		}
	}
	if off {
		return nil, fault.Wrap(errDisabled, fault.SandboxCapacity, "process.Claim", fault.RetryAfter(enabledAgain))
	}
	return nil, fault.Wrap(errNoProfile, fault.WorkerMismatch, "process.Claim")
}
