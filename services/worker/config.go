package worker

import (
	"errors"
	"flag"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"cofferdam.dev/pkg/service"
	"cofferdam.dev/services/worker/internal/session"
)

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Config of a worker. It comes with the process, before anything is claimed; a
// worker learns whom it works for by bind alone.
type Config struct {
	service.Base

	// Harness is the id of the adapter that runs inside.
	Harness string
	// Workspace is the disposable folder of this worker.
	Workspace string
	// Runner is where the world of a hosted program is driven, and HarnessConfig
	// the operator's configuration of that program; for acp and stdio.
	Runner        string
	HarnessConfig string
	// StopTimeout is how long a harness may take to stop, and UnboundTimeout how
	// long an unbound worker waits for a control plane.
	StopTimeout, UnboundTimeout time.Duration
	// CPUSeconds is how much processor time this process may use in all; 0 is no limit.
	CPUSeconds uint64
	// TerminationLog is the file of a container whose content is its last words, or empty.
	TerminationLog string
	// CapabilityAddress is where the public keys of capabilities are.
	CapabilityAddress string
	// Issuer of capabilities.
	Issuer string
	// ImageDigest is sha256:… of the image that this worker runs from, where it is one.
	ImageDigest string
}

// Flags registers all settings.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	fs.StringVar(&c.Harness, "harness", "native", "id of the adapter: native, acp, stdio, or scripted, which is for tests. What each can do is told by another command, worker "+DescribeCommand+" -help")
	fs.StringVar(&c.Workspace, "workspace", "", "disposable `folder` of this worker")
	fs.StringVar(&c.Runner, "runner", "", "unix:///path of the runner of the hosted program; for acp and stdio")
	fs.StringVar(&c.HarnessConfig, "harness-config", "", "JSON `file` of the hosted program; for acp and stdio")
	fs.DurationVar(&c.StopTimeout, "stop-timeout", session.DefaultStopTimeout, "how long a harness may take to stop; the worker of one that takes longer ends")
	fs.DurationVar(&c.UnboundTimeout, "unbound-timeout", session.DefaultUnboundTimeout, "how long an unbound worker that no control plane asks anything lives")
	fs.Uint64Var(&c.CPUSeconds, "cpu-seconds", 0, "processor time in seconds after which this process is ended by its limit, as one that spins is (default no limit)")
	fs.StringVar(&c.TerminationLog, "termination-log", "", "`file` to which this process, where it may have no more threads, has the runner beside it write so: /dev/termination-log in a pod (default none)")
	fs.StringVar(&c.CapabilityAddress, "capability", "", "address of the capability service's public keys: https://host:port or unix:///path")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities")
	fs.StringVar(&c.ImageDigest, "image-digest", "", "sha256:… of the image that this worker runs from, which the control plane compares with the pod and its profile (default that of its own binary)")
}

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate()}
	if !filepath.IsAbs(c.Workspace) {
		errs = append(errs, errors.New("--workspace: an absolute path"))
	}
	if c.Harness == "" {
		errs = append(errs, errors.New("--harness: required"))
	}
	if hosts(c.Harness) != (c.Runner != "") || hosts(c.Harness) != (c.HarnessConfig != "") {
		errs = append(errs, errors.New("--runner and --harness-config: for acp and stdio, both, and for no other"))
	}
	if c.StopTimeout <= 0 || c.UnboundTimeout <= 0 {
		errs = append(errs, errors.New("--stop-timeout and --unbound-timeout: longer than 0"))
	}
	if c.TerminationLog != "" && !filepath.IsAbs(c.TerminationLog) {
		errs = append(errs, errors.New("--termination-log: an absolute path, or empty"))
	}
	if !strings.HasPrefix(c.CapabilityAddress, "https://") && !strings.HasPrefix(c.CapabilityAddress, "unix:///") {
		errs = append(errs, errors.New("--capability: https://host:port or unix:///path"))
	}
	if c.ImageDigest != "" && !digestPattern.MatchString(c.ImageDigest) {
		errs = append(errs, errors.New("--image-digest: sha256: and 64 hexadecimal digits, or empty"))
	}
	if c.Issuer == "" {
		errs = append(errs, errors.New("--issuer: required"))
	}
	return errors.Join(errs...)
}
