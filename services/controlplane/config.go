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
	"cofferdam.dev/services/controlplane/internal/runs"
	"cofferdam.dev/services/controlplane/internal/sandbox/process"
)

const (
	maxTakeOver    = 10 * time.Minute
	maxCancelGrace = time.Minute
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
	// Environment is part of every binding's identity.
	Environment string
	// Agents is the operator's catalogue of agents, a JSON file.
	Agents string

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

	// Sandbox is the provider: process.
	Sandbox            string
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
	// Warm is how many sandboxes of the built-in profile are kept ready.
	Warm int

	BeatEvery     time.Duration
	TakeOverAfter time.Duration
	CancelGrace   time.Duration
	// IdleAfter is how long a sandbox may wait for the next turn.
	IdleAfter time.Duration
}

// Flags registers all settings.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	c.OpenFGA.Flags(fs)
	fs.StringVar(&c.Store, "store", "", "the committed records, shared with the other services: "+storeaddr.Usage)
	fs.StringVar(&c.StorePasswordFile, "store-password-file", "", storeaddr.PasswordUsage)
	fs.StringVar(&c.IDKeyFile, "id-key-file", "", "`file` with 32 bytes or more: the key under which binding ids are digests")
	fs.StringVar(&c.Environment, "environment", "local", "name of this installation; part of every binding's identity")
	fs.StringVar(&c.Agents, "agents", "", "JSON `file` with the catalogue of agents")
	fs.StringVar(&c.PublicListen, "public-listen", "", "address of the public API without TLS, behind an ingress: host:port, unix:///path, or fd://N")
	fs.StringVar(&c.OperatorListen, "operator-listen", "", "address of the operators' API, in the same forms")
	fs.StringVar(&c.OIDCIssuer, "oidc-issuer", "", "issuer of callers' tokens")
	fs.StringVar(&c.OIDCAudience, "oidc-audience", "cofferdam", "audience of callers' tokens")
	fs.StringVar(&c.OIDCJWKS, "oidc-jwks", "", "JWK set of the issuer: a file, or an https URL")
	fs.StringVar(&c.OIDCAlgorithms, "oidc-algorithms", "RS256,ES256,EdDSA", "accepted algorithms, separated by commas")
	fs.StringVar(&c.CapabilityAddress, "capability", "", "address of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.ToolBrokerAddress, "toolbroker", "", "address of the ToolBroker")
	fs.StringVar(&c.FileBrokerAddress, "filebroker", "", "address of the file broker")
	fs.StringVar(&c.Sandbox, "sandbox", "process", "sandbox provider: process")
	fs.BoolVar(&c.AllowWeakIsolation, "allow-weak-isolation", false, "start although isolation layers are missing; they are named in the log")
	fs.StringVar(&c.LauncherPath, "launcher", "", "path of the program that makes sandboxes")
	fs.StringVar(&c.WorkerPath, "worker", "", "path of the worker's binary")
	fs.StringVar(&c.RunnerPath, "runner", "", "path of the runner of hosted programs (default none)")
	fs.StringVar(&c.SandboxProfiles, "sandbox-profiles", "", "JSON `file` of sandbox profiles (default one named local, for the harness native)")
	fs.StringVar(&c.SandboxSockets, "sandbox-sockets", "", "`folder` with the sockets that workers find in their sandboxes: "+strings.Join(process.Services(), ", ")+", each with .sock")
	fs.StringVar(&c.SandboxDir, "sandbox-dir", "", "`folder` for the sockets of workers, of this control plane alone")
	fs.StringVar(&c.WorkerIssuer, "capability-issuer", "", "issuer of capabilities, which workers pin")
	fs.StringVar(&c.RegistrarAddress, "registrar", "", "address of this machine's identity registrar")
	fs.StringVar(&c.WorkerLogs, "worker-logs", "", "`folder` for the workers' logs")
	fs.IntVar(&c.MaxSandboxes, "max-sandboxes", process.DefaultMaxInstances, "how many sandboxes may live at once, the warm ones among them")
	fs.IntVar(&c.Warm, "warm", 0, "how many sandboxes of the built-in profile are kept ready; a file of profiles says its own")
	fs.DurationVar(&c.BeatEvery, "beat-every", runs.DefaultBeatEvery, "how often this replica shows that it drives a run")
	fs.DurationVar(&c.TakeOverAfter, "take-over-after", runs.DefaultTakeOverAfter, "how long another replica's beat must stand still before its runs are taken over")
	fs.DurationVar(&c.CancelGrace, "cancel-grace", runs.DefaultCancelGrace, "how long a worker may take to stop before its sandbox is ended")
	fs.DurationVar(&c.IdleAfter, "idle-after", runs.DefaultIdleAfter, "how long a sandbox may wait for the next turn before it is given back")
}

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate(), c.OpenFGA.Validate(), storeaddr.ValidateFlags(c.StorePasswordFile, storeaddr.Named{Flag: "store", Location: c.Store})}
	for _, v := range []struct{ flag, value string }{
		{"id-key-file", c.IDKeyFile},
		{"environment", c.Environment},
		{"agents", c.Agents},
		{"public-listen", c.PublicListen},
		{"operator-listen", c.OperatorListen},
		{"oidc-issuer", c.OIDCIssuer},
		{"oidc-audience", c.OIDCAudience},
		{"oidc-jwks", c.OIDCJWKS},
		{"launcher", c.LauncherPath},
		{"worker", c.WorkerPath},
		{"capability-issuer", c.WorkerIssuer},
		{"sandbox-sockets", c.SandboxSockets},
		{"sandbox-dir", c.SandboxDir},
		{"worker-logs", c.WorkerLogs},
	} {
		if v.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", v.flag))
		}
	}
	for _, v := range []struct{ flag, value string }{
		{"capability", c.CapabilityAddress},
		{"toolbroker", c.ToolBrokerAddress},
		{"filebroker", c.FileBrokerAddress},
		{"registrar", c.RegistrarAddress},
	} {
		if !validAddress(v.value) {
			errs = append(errs, fmt.Errorf("--%s: required: https://host:port or unix:///path", v.flag))
		}
	}
	return errors.Join(append(errs, c.validateSandboxes(), c.validateOIDC(), c.validateTimes())...)
}

func (c *Config) validateSandboxes() error {
	var errs []error
	if c.Sandbox != "process" {
		errs = append(errs, fmt.Errorf("--sandbox: %q is not implemented; this version has process", c.Sandbox))
	}
	if c.MaxSandboxes < 1 || c.MaxSandboxes > process.MostInstances {
		errs = append(errs, fmt.Errorf("--max-sandboxes: 1 to %d", process.MostInstances))
	}
	if c.Warm < 0 || c.Warm > c.MaxSandboxes {
		errs = append(errs, errors.New("--warm: 0 to --max-sandboxes"))
	}
	if c.Warm > 0 && c.SandboxProfiles != "" {
		errs = append(errs, errors.New("--warm: beside --sandbox-profiles each profile says it by itself"))
	}
	return errors.Join(errs...)
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
	return errors.Join(errs...)
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
