package controlplane

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/pkg/authz/openfgaauthz"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/controlplane/internal/authn"
	"cofferdam.dev/services/controlplane/internal/ratelimit"
	"cofferdam.dev/services/controlplane/internal/runs"
)

const (
	sandboxProcess = "process"
	sandboxHost    = "host"
	sandboxCluster = "kubernetes"

	maxTakeOver    = 10 * time.Minute
	maxCancelGrace = time.Minute
	minIdleAfter   = time.Second
)

// Config of the control plane.
type Config struct {
	service.Base
	OpenFGA openfgaauthz.Config

	// Store is where the committed records are kept: a SQLite file, or mongodb://…
	// without a password, which StorePasswordFile has.
	Store             string
	StorePasswordFile string
	// IDKeyFile holds the key under which binding ids are digests.
	IDKeyFile string
	// Replica is this replica's name for people. What tells two processes apart is
	// chosen at random beside it.
	Replica string
	// Environment is part of every binding's identity.
	Environment string
	// Agents is the operator's catalogue of agents, a JSON file.
	Agents string
	// AgentFolder is what the skills and files of its agents are relative to.
	AgentFolder string

	// PublicListen and OperatorListen take host:port, unix:///path or fd://N.
	PublicListen   string
	OperatorListen string

	OIDCIssuer     string
	OIDCAudience   string
	OIDCJWKS       string
	OIDCAlgorithms string

	CapabilityAddress string
	ToolBrokerAddress string
	FileBrokerAddress string

	// Sandbox is the provider: process, whose sandboxes are this replica's own, host,
	// which several replicas share, or kubernetes; SandboxHost is where a host answers.
	Sandbox     string
	SandboxHost string
	Sandboxes
	Cluster

	BeatEvery     time.Duration
	TakeOverAfter time.Duration
	CancelGrace   time.Duration
	// IdleAfter is how long a sandbox may wait for the next turn.
	IdleAfter time.Duration
	// KeepEvents is how long the events of a run are kept after its end; 0 is for good.
	KeepEvents time.Duration

	// Limits of each subject.
	Limits ratelimit.Config
}

const (
	defaultKeepEvents = 90 * 24 * time.Hour
	minKeepEvents     = 24 * time.Hour
)

// limitBounds are those of each limit of a subject.
const limitBounds = "; more than 0, at most 1000000"

// Flags registers all settings.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	c.OpenFGA.Flags(fs)
	fs.StringVar(&c.Store, "store", "", "the committed records, shared with the other services: "+storeaddr.Usage)
	fs.StringVar(&c.StorePasswordFile, "store-password-file", "", storeaddr.PasswordUsage)
	fs.StringVar(&c.IDKeyFile, "id-key-file", "", "`file` with 32 bytes or more: the key under which binding ids are digests")
	fs.StringVar(&c.Replica, "replica", "cp", "name of this replica, in its log and in the records of the runs that it drives")
	fs.StringVar(&c.Environment, "environment", "local", "name of this installation; part of every binding's identity")
	fs.StringVar(&c.Agents, "agents", "", "JSON `file` with the catalogue of agents, at most 4 MiB, see docs/agents.md")
	fs.StringVar(&c.AgentFolder, "agent-folder", "", "`folder` that the skills and files of those agents are relative to; that of --agents if it is left out")
	fs.StringVar(&c.PublicListen, "public-listen", "", "address of the public API without TLS, behind an ingress: host:port, unix:///path, or fd://N")
	fs.StringVar(&c.OperatorListen, "operator-listen", "", "address of the operators' API, in the same forms")
	fs.StringVar(&c.OIDCIssuer, "oidc-issuer", "", "issuer of callers' tokens")
	fs.StringVar(&c.OIDCAudience, "oidc-audience", "cofferdam", "audience of callers' tokens")
	fs.StringVar(&c.OIDCJWKS, "oidc-jwks", "", "JWK set of the issuer: a file, or an https URL")
	fs.StringVar(&c.OIDCAlgorithms, "oidc-algorithms", "RS256,ES256,EdDSA", "accepted algorithms, separated by commas")
	fs.StringVar(&c.CapabilityAddress, "capability", "", "address of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.ToolBrokerAddress, "toolbroker", "", "address of the ToolBroker")
	fs.StringVar(&c.FileBrokerAddress, "filebroker", "", "address of the file broker")
	fs.StringVar(&c.Sandbox, "sandbox", sandboxProcess, "sandbox provider: process, for one replica alone; host, which several share; or kubernetes, with claims in a cluster")
	fs.StringVar(&c.SandboxHost, "sandbox-host", "", "address of the sandbox host, with --sandbox=host; what is said of sandboxes is then said to it")
	c.Sandboxes.flags(fs)
	c.Cluster.flags(fs)
	fs.DurationVar(&c.BeatEvery, "beat-every", runs.DefaultBeatEvery, "how often this replica shows that it drives a run")
	fs.DurationVar(&c.TakeOverAfter, "take-over-after", runs.DefaultTakeOverAfter, "how long another replica's beat must stand still before its runs are taken over: three times --beat-every or more, at most 10m")
	fs.DurationVar(&c.CancelGrace, "cancel-grace", runs.DefaultCancelGrace, "how long a worker may take to stop before its sandbox is ended, at most 1m")
	fs.DurationVar(&c.IdleAfter, "idle-after", runs.DefaultIdleAfter, "how long a sandbox may wait for the next turn before it is given back, and its /workspace with it; 1s or more")
	fs.DurationVar(&c.KeepEvents, "keep-events", defaultKeepEvents, "how long the events of a run are kept after its end, at least 24h; 0 keeps them for good")
	l := &c.Limits
	fs.Float64Var(&l.RequestsPerSecond, "requests-per-second", 1000, "how often a subject may ask in the long run"+limitBounds)
	fs.IntVar(&l.RequestBurst, "request-burst", 2000, "how many requests a subject may make at once after a pause"+limitBounds)
	fs.Float64Var(&l.StartsPerSecond, "starts-per-second", 50, "how many runs a subject may start or resume, and files it may store, in the long run"+limitBounds)
	fs.IntVar(&l.StartBurst, "start-burst", 1000, "how many runs a subject may start or resume, and files it may store, at once after a pause"+limitBounds)
	fs.IntVar(&l.Open, "open-requests", 2048, "how many requests of a subject may be open at once, streams among them"+limitBounds)
	fs.IntVar(&l.Subjects, "limited-subjects", 10000, "for how many subjects it is kept what they have used; of more, who was quiet for longest is forgotten"+limitBounds)
}

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate(), c.OpenFGA.Validate(), storeaddr.ValidateFlags(c.StorePasswordFile, storeaddr.Named{Flag: "store", Location: c.Store})}
	for _, v := range []struct{ flag, value string }{
		{"id-key-file", c.IDKeyFile},
		{"environment", c.Environment},
		{"replica", c.Replica},
		{"agents", c.Agents},
		{"public-listen", c.PublicListen},
		{"operator-listen", c.OperatorListen},
		{"oidc-issuer", c.OIDCIssuer},
		{"oidc-audience", c.OIDCAudience},
		{"oidc-jwks", c.OIDCJWKS},
	} {
		if v.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", v.flag))
		}
	}
	for _, v := range []struct{ flag, value string }{
		{"capability", c.CapabilityAddress},
		{"toolbroker", c.ToolBrokerAddress},
		{"filebroker", c.FileBrokerAddress},
	} {
		if !validAddress(v.value) {
			errs = append(errs, fmt.Errorf("--%s: required: https://host:port or unix:///path", v.flag))
		}
	}
	return errors.Join(append(errs, c.validateSandboxes(), c.validateOIDC(), c.validateTimes(), c.validateLimits())...)
}

func (c *Config) validateSandboxes() error {
	switch c.Sandbox {
	case sandboxProcess:
		if c.SandboxHost != "" {
			return errors.New("--sandbox-host: only with --sandbox=host")
		}
		return c.Sandboxes.validate()
	case sandboxHost:
		if !validAddress(c.SandboxHost) {
			return errors.New("--sandbox-host: required with --sandbox=host: https://host:port or unix:///path")
		}
		return nil
	case sandboxCluster:
		return c.Cluster.validate(c.SandboxProfiles)
	default:
		return fmt.Errorf("--sandbox: %q is none of process, host and kubernetes", c.Sandbox)
	}
}

func (c *Config) validateOIDC() error {
	var errs []error
	if u, err := url.Parse(c.OIDCJWKS); err == nil && u.Scheme != "" && (u.Scheme != "https" || u.Host == "" || u.User != nil) {
		errs = append(errs, errors.New("--oidc-jwks: a file, or an https URL without credentials"))
	}
	for _, a := range c.algorithms() {
		if !slices.Contains(authn.Asymmetric(), a) {
			errs = append(errs, fmt.Errorf("--oidc-algorithms: %q is not one of %v", a, authn.Asymmetric()))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateTimes() error {
	var errs []error
	if c.BeatEvery <= 0 || c.TakeOverAfter < 3*c.BeatEvery || c.TakeOverAfter > maxTakeOver {
		errs = append(errs, fmt.Errorf("--take-over-after: at least three times --beat-every, which is positive, and at most %v", maxTakeOver))
	}
	if c.CancelGrace <= 0 || c.CancelGrace > maxCancelGrace {
		errs = append(errs, fmt.Errorf("--cancel-grace: more than 0, at most %v", maxCancelGrace))
	}
	if c.IdleAfter < minIdleAfter {
		errs = append(errs, fmt.Errorf("--idle-after: %v or more", minIdleAfter))
	}
	if c.KeepEvents != 0 && c.KeepEvents < minKeepEvents {
		errs = append(errs, fmt.Errorf("--keep-events: at least %v, or 0, which keeps them for good", minKeepEvents))
	}
	return errors.Join(errs...)
}

func (c *Config) validateLimits() error {
	if err := c.Limits.Validate(); err != nil {
		return fmt.Errorf("limits of a subject: %w", err)
	}
	return nil
}

// validAddress takes https://host:port and unix:///path, and nothing that would
// be appended to or sent along.
func validAddress(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return false
	}
	switch u.Scheme {
	case "https":
		return u.Hostname() != "" && u.Path == ""
	case "unix":
		return strings.HasPrefix(address, "unix:///") && len(u.Path) > 1
	default:
		return false
	}
}

func (c *Config) algorithms() []jose.SignatureAlgorithm {
	var out []jose.SignatureAlgorithm
	for a := range strings.SplitSeq(c.OIDCAlgorithms, ",") {
		out = append(out, jose.SignatureAlgorithm(strings.TrimSpace(a)))
	}
	return out
}

func (c *Config) at(location string) storeaddr.Address {
	return storeaddr.Address{Location: location, PasswordFile: c.StorePasswordFile}
}
