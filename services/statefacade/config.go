package statefacade

import (
	"errors"
	"flag"
	"fmt"

	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
)

// Config of the state facade.
type Config struct {
	service.Base
	// Store is the SQLite file of the committed records.
	Store string
	// StateStore is the SQLite file of snapshots and memory; it may be Store.
	StateStore string
	// CapabilityURL and CapabilityID name the capability service, whose keys are
	// believed, and Issuer what stands in its tokens.
	CapabilityURL string
	CapabilityID  string
	Issuer        string
}

// Flags implements service.Config.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	fs.StringVar(&c.Store, "store", "", "SQLite `file` of the committed records, shared with the other services")
	fs.StringVar(&c.StateStore, "state-store", "", "SQLite `file` of snapshots and memory; may be the one of -store")
	fs.StringVar(&c.CapabilityURL, "capability-url", "", "`address` of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.CapabilityID, "capability-id", "", "SPIFFE `ID` of the capability service")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities, exactly as it stands in them")
}

// Validate implements service.Config.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate()}
	for _, f := range []struct{ name, value string }{
		{"store", c.Store}, {"state-store", c.StateStore}, {"issuer", c.Issuer},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", f.name))
		}
	}
	if _, err := c.capability(); err != nil {
		errs = append(errs, fmt.Errorf("--capability-url and --capability-id: %w", err))
	}
	return errors.Join(errs...)
}

func (c *Config) capability() (rpc.Endpoint, error) {
	return rpc.ParseEndpoint(c.CapabilityURL, c.CapabilityID)
}
