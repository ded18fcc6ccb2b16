package statefacade

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/storeaddr"
)

// defaultSweep is how often snapshots that lost are looked for.
const defaultSweep = 10 * time.Minute

// Config of the state facade.
type Config struct {
	service.Base
	// Store is where the committed records are kept: a SQLite file, or mongodb://…
	// without a password, which StorePasswordFile has.
	Store             string
	StorePasswordFile string
	// StateStore is where snapshots and memory are kept; it may be Store.
	StateStore string
	// MemoryPolicy is the JSON file of what the operator says about memory; empty is
	// the contract's default.
	MemoryPolicy string
	// BlobURL is where large snapshots are kept: file:///folder or s3://bucket, with a
	// file of credentials.
	BlobURL, BlobCredentialsFile string
	// SweepInterval is how often snapshots that lost are looked for.
	SweepInterval time.Duration
	// CapabilityURL and CapabilityID name the capability service, whose keys are
	// believed, and Issuer what stands in its tokens.
	CapabilityURL string
	CapabilityID  string
	Issuer        string
}

// Flags implements service.Config.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	fs.StringVar(&c.Store, "store", "", "the committed records, shared with the other services: "+storeaddr.Usage)
	fs.StringVar(&c.StorePasswordFile, "store-password-file", "", storeaddr.PasswordUsage)
	fs.StringVar(&c.StateStore, "state-store", "", "snapshots and memory, may be the one of -store: "+storeaddr.Usage)
	fs.StringVar(&c.MemoryPolicy, "memory-policy", "", "JSON `file` of who may write which memory, what needs approval, and how long it is kept; the default is in docs/memory.md")
	fs.StringVar(&c.BlobURL, "blob-url", "", "snapshots over 1 MiB: "+blobstore.Usage)
	fs.StringVar(&c.BlobCredentialsFile, "blob-credentials-file", "", blobstore.CredentialsUsage)
	fs.DurationVar(&c.SweepInterval, "sweep-interval", defaultSweep, "how often snapshots that lost are looked for and removed")
	fs.StringVar(&c.CapabilityURL, "capability-url", "", "`address` of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.CapabilityID, "capability-id", "", "SPIFFE `ID` of the capability service")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities, exactly as it stands in them")
}

// Validate implements service.Config.
func (c *Config) Validate() error {
	errs := []error{
		c.Base.Validate(),
		storeaddr.ValidateFlags(c.StorePasswordFile, storeaddr.Named{Flag: "store", Location: c.Store}, storeaddr.Named{Flag: "state-store", Location: c.StateStore}),
	}
	if c.Issuer == "" {
		errs = append(errs, errors.New("--issuer: required"))
	}
	if err := c.blobs().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--blob-url and --blob-credentials-file: %w", err))
	}
	if c.SweepInterval < time.Second {
		errs = append(errs, errors.New("--sweep-interval: 1s or more"))
	}
	if _, err := c.capability(); err != nil {
		errs = append(errs, fmt.Errorf("--capability-url and --capability-id: %w", err))
	}
	return errors.Join(errs...)
}

func (c *Config) capability() (rpc.Endpoint, error) {
	return rpc.ParseEndpoint(c.CapabilityURL, c.CapabilityID)
}

func (c *Config) at(location string) storeaddr.Address {
	return storeaddr.Address{Location: location, PasswordFile: c.StorePasswordFile}
}

func (c *Config) blobs() blobstore.Address {
	return blobstore.Address{URL: c.BlobURL, CredentialsFile: c.BlobCredentialsFile}
}
