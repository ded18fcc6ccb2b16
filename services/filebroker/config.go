package filebroker

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

const (
	// defaultQuota is what the files of one conversation may have together.
	defaultQuota        = 256 << 20
	defaultCollectAfter = 24 * time.Hour
	defaultCollectEvery = 15 * time.Minute
	// minCollectAfter leaves a caller the time to start a run with a file.
	minCollectAfter = time.Minute
)

// Config of the file broker.
type Config struct {
	service.Base
	// Store is where the committed records are kept: a SQLite file, or mongodb://…
	// without a password, which StorePasswordFile has.
	Store             string
	StorePasswordFile string
	// HandleStore is where handles and objects are kept; it may be Store.
	HandleStore string
	// BlobURL is where contents are kept: file:///folder or s3://bucket, with a
	// file of credentials.
	BlobURL, BlobCredentialsFile string
	// QuotaBytes is what the files of one conversation may have together.
	QuotaBytes int64
	// CollectAfter is how long a file is kept that nothing refers to, and CollectEvery
	// how often such files are looked for.
	CollectAfter, CollectEvery time.Duration
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
	fs.StringVar(&c.HandleStore, "handle-store", "", "handles and objects, may be the one of -store: "+storeaddr.Usage)
	fs.StringVar(&c.BlobURL, "blob-url", "", "the contents of files: "+blobstore.Usage)
	fs.StringVar(&c.BlobCredentialsFile, "blob-credentials-file", "", blobstore.CredentialsUsage)
	fs.Int64Var(&c.QuotaBytes, "quota-bytes", defaultQuota, "what the files of one conversation may have together, in `bytes`; 1 or more")
	fs.DurationVar(&c.CollectAfter, "collect-after", defaultCollectAfter, "how long a file is kept that no run was given, or whose conversation was cleared, from when it was stored on; 1m or more")
	fs.DurationVar(&c.CollectEvery, "collect-every", defaultCollectEvery, "how often such files, and what processes that died have left, are looked for; 1s or more")
	fs.StringVar(&c.CapabilityURL, "capability-url", "", "`address` of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.CapabilityID, "capability-id", "", "SPIFFE `ID` of the capability service")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities, exactly as it stands in them")
}

// Validate implements service.Config.
func (c *Config) Validate() error {
	errs := []error{
		c.Base.Validate(),
		storeaddr.ValidateFlags(c.StorePasswordFile, storeaddr.Named{Flag: "store", Location: c.Store}, storeaddr.Named{Flag: "handle-store", Location: c.HandleStore}),
	}
	if c.Issuer == "" {
		errs = append(errs, errors.New("--issuer: required"))
	}
	if err := c.blobs().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--blob-url and --blob-credentials-file: %w", err))
	}
	if c.QuotaBytes < 1 {
		errs = append(errs, errors.New("--quota-bytes: 1 or more"))
	}
	if c.CollectAfter < minCollectAfter {
		errs = append(errs, fmt.Errorf("--collect-after: %s or more", minCollectAfter))
	}
	if c.CollectEvery < time.Second {
		errs = append(errs, errors.New("--collect-every: 1s or more"))
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
