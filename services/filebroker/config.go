package filebroker

import (
	"errors"
	"flag"
	"fmt"

	"cofferdam.dev/pkg/blob/blobstore"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/service"
)

// defaultQuota is what the files of one conversation may have together.
const defaultQuota = 256 << 20

// Config of the file broker.
type Config struct {
	service.Base
	// Store is the SQLite file of the committed records.
	Store string
	// HandleStore is the SQLite file of handles and objects; it may be Store.
	HandleStore string
	// BlobURL is where contents are kept: file:///folder.
	BlobURL string
	// QuotaBytes is what the files of one conversation may have together.
	QuotaBytes int64
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
	fs.StringVar(&c.HandleStore, "handle-store", "", "SQLite `file` of handles and objects; may be the one of -store")
	fs.StringVar(&c.BlobURL, "blob-url", "", "`URL` of the folder with the contents of files, file:///path; made with mode 0700 if it is not there")
	fs.Int64Var(&c.QuotaBytes, "quota-bytes", defaultQuota, "what the files of one conversation may have together, in `bytes`")
	fs.StringVar(&c.CapabilityURL, "capability-url", "", "`address` of the capability service: https://host:port or unix:///path")
	fs.StringVar(&c.CapabilityID, "capability-id", "", "SPIFFE `ID` of the capability service")
	fs.StringVar(&c.Issuer, "issuer", "", "issuer of capabilities, exactly as it stands in them")
}

// Validate implements service.Config.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate()}
	for _, f := range []struct{ name, value string }{
		{"store", c.Store}, {"handle-store", c.HandleStore}, {"issuer", c.Issuer},
	} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("--%s: required", f.name))
		}
	}
	if err := blobstore.CheckURL(c.BlobURL); err != nil {
		errs = append(errs, fmt.Errorf("--blob-url: %w", err))
	}
	if c.QuotaBytes < 1 {
		errs = append(errs, errors.New("--quota-bytes: 1 or more"))
	}
	if _, err := c.capability(); err != nil {
		errs = append(errs, fmt.Errorf("--capability-url and --capability-id: %w", err))
	}
	return errors.Join(errs...)
}

func (c *Config) capability() (rpc.Endpoint, error) {
	return rpc.ParseEndpoint(c.CapabilityURL, c.CapabilityID)
}
