package worker

import (
	"errors"
	"flag"
	"path/filepath"
	"strings"

	"cofferdam.dev/pkg/service"
)

// Config of a worker. It comes with the process, before anything is claimed; a
// worker learns whom it works for by bind alone.
type Config struct {
	service.Base

	// Harness is the id of the adapter that runs inside.
	Harness string
	// Workspace is the disposable folder of this worker.
	Workspace string
	// CapabilityAddress is where the public keys of capabilities are.
	CapabilityAddress string
	// Issuer of capabilities.
	Issuer string
}

// Flags registers all settings.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	fs.StringVar(&c.Harness, "harness", "native", "id of the adapter: native")
	fs.StringVar(&c.Workspace, "workspace", "", "disposable `folder` of this worker")
	fs.StringVar(&c.CapabilityAddress, "capability", "", "address of the capability service's public keys: https://host:port or unix:///path")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities")
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
	if !strings.HasPrefix(c.CapabilityAddress, "https://") && !strings.HasPrefix(c.CapabilityAddress, "unix:///") {
		errs = append(errs, errors.New("--capability: https://host:port or unix:///path"))
	}
	if c.Issuer == "" {
		errs = append(errs, errors.New("--issuer: required"))
	}
	return errors.Join(errs...)
}
