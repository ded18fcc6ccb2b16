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
	"cofferdam.dev/services/statefacade/internal/memory/vector"
)

// defaultSweep is how often snapshots that lost are looked for.
const defaultSweep = 10 * time.Minute

// maxAlias bounds the name of a model alias, in bytes.
const maxAlias = 128

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
	// EmbeddingURL and EmbeddingID name the model proxy that makes embeddings for the
	// vector rank of memory, EmbeddingAlias what it calls the model, and
	// EmbeddingDimension how many numbers that model answers. All empty: searches
	// rank by words.
	EmbeddingURL, EmbeddingID, EmbeddingAlias string
	EmbeddingDimension                        int
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
	fs.DurationVar(&c.SweepInterval, "sweep-interval", defaultSweep, "how often snapshots that lost are looked for and removed, 1s or more")
	fs.StringVar(&c.EmbeddingURL, "embedding-url", "", "`address` of the model proxy, for the vector rank of memory: https://host:port or unix:///path; empty is none")
	fs.StringVar(&c.EmbeddingID, "embedding-id", "", "SPIFFE `ID` of the model proxy")
	fs.StringVar(&c.EmbeddingAlias, "embedding-alias", "", "`name` of a model alias of the wire openai_embeddings; another model wants another name")
	fs.IntVar(&c.EmbeddingDimension, "embedding-dimension", 0, "how many `numbers` an embedding of that alias has, at most 4096")
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
	if _, _, err := c.embedding(); err != nil {
		errs = append(errs, err)
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

// embedding is where embeddings are made, and in which space they are. The zero
// endpoint is nowhere.
func (c *Config) embedding() (ep rpc.Endpoint, space vector.Space, err error) {
	if c.EmbeddingURL == "" && c.EmbeddingID == "" && c.EmbeddingAlias == "" && c.EmbeddingDimension == 0 {
		return ep, space, nil
	}
	space = vector.Space{Model: c.EmbeddingAlias, Dimension: c.EmbeddingDimension}
	if ep, err = rpc.ParseEndpoint(c.EmbeddingURL, c.EmbeddingID); err != nil {
		err = fmt.Errorf("--embedding-url and --embedding-id: %w", err)
	}
	if n := len(c.EmbeddingAlias); n == 0 || n > maxAlias {
		err = errors.Join(err, fmt.Errorf("--embedding-alias: 1 to %d bytes, where there is an --embedding-url", maxAlias))
	}
	if n := c.EmbeddingDimension; n < 1 || n > vector.MaxDimension {
		err = errors.Join(err, fmt.Errorf("--embedding-dimension: 1 to %d, where there is an --embedding-url", vector.MaxDimension))
	}
	return ep, space, err
}

func (c *Config) at(location string) storeaddr.Address {
	return storeaddr.Address{Location: location, PasswordFile: c.StorePasswordFile}
}

func (c *Config) blobs() blobstore.Address {
	return blobstore.Address{URL: c.BlobURL, CredentialsFile: c.BlobCredentialsFile}
}
