package capability

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/service"
	"cofferdam.dev/pkg/storeaddr"
	"cofferdam.dev/services/capability/internal/mint"
	"cofferdam.dev/services/capability/internal/signingkey"
)

const (
	defaultMaxTTL = 24 * time.Hour // as long as a run may take: nothing renews a capability
	minMaxTTL     = time.Minute
	maxMaxTTL     = 24 * time.Hour
	maxIssuer     = 512
	// maxTokenEndpoint is the bound of the audience of an AssertRequest, in bytes.
	maxTokenEndpoint = 512

	defaultKeyRotation = 30 * 24 * time.Hour
)

// Config is the configuration of the capability service.
type Config struct {
	service.Base
	// Store is where the committed records are kept: a SQLite file, or mongodb://…
	// without a password, which StorePasswordFile has.
	Store             string
	StorePasswordFile string
	// KeyFile is the path of the JWK set with which the signing keys in the store
	// are encrypted, the same for all replicas. The first key encrypts, all decrypt.
	// Only its owner may be able to read it.
	KeyFile string
	// CreateKey makes the key file, with one key, where there is none.
	CreateKey bool
	// Issuer is the iss of every capability, at most 512 bytes; empty is the
	// SPIFFE ID of this service.
	Issuer string
	// ControlPlane is the one SPIFFE ID that may mint; empty is svc/controlplane of
	// the trust domain.
	ControlPlane string
	// JWKSCallers is a comma-separated list of who may read the public keys: SPIFFE
	// IDs and spiffe://<trust domain>/sandbox/*. Empty is every service that
	// verifies capabilities and every sandbox of the trust domain. The control
	// plane may always.
	JWKSCallers string
	// TokenEndpoints is a comma-separated list of the https URLs of token endpoints
	// (RFC 8693) for which ToolBroker may have the subject of a run asserted. Empty
	// is none.
	TokenEndpoints string
	// MaxTTL bounds the life of a capability, 1 min to 24 h. It never outlives its
	// run in any case.
	MaxTTL time.Duration
	// KeyRotation is how long a signing key signs, an hour or more.
	KeyRotation time.Duration
}

// Flags implements service.Config.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Base.Flags(fs)
	fs.StringVar(&c.Store, "store", "", "the committed records, shared with the other services: "+storeaddr.Usage)
	fs.StringVar(&c.StorePasswordFile, "store-password-file", "", storeaddr.PasswordUsage)
	fs.StringVar(&c.KeyFile, "key-file", "", "JWK set of 256-bit keys that encrypt the signing keys in the store, a `file` with mode 0600, the same for all replicas; the first key encrypts, all decrypt")
	fs.BoolVar(&c.CreateKey, "create-key", false, "make -key-file with one key where there is none")
	fs.StringVar(&c.Issuer, "issuer", "", "iss of every capability (default svc/capability of the trust domain)")
	fs.StringVar(&c.ControlPlane, "controlplane", "", "SPIFFE `ID` that may mint (default svc/controlplane of the trust domain)")
	fs.StringVar(&c.JWKSCallers, "jwks-callers", "", "SPIFFE `IDs` that may read the public keys, with commas between them (default the services that verify capabilities, and every sandbox)")
	fs.StringVar(&c.TokenEndpoints, "token-endpoints", "", "`URLs` of the token endpoints, with commas between them, for which ToolBroker may have the subject of a run asserted: those of credentials of the source token_exchange (default none)")
	fs.DurationVar(&c.KeyRotation, "key-rotation", defaultKeyRotation, "how long a key signs before the next one does, 1h or more")
	fs.DurationVar(&c.MaxTTL, "max-ttl", defaultMaxTTL, "longest life of a capability, 1m to 24h")
}

// Validate implements service.Config.
func (c *Config) Validate() error {
	errs := []error{c.Base.Validate(), storeaddr.ValidateFlags(c.StorePasswordFile, storeaddr.Named{Flag: "store", Location: c.Store})}
	if c.KeyFile == "" {
		errs = append(errs, errors.New("--key-file: required: a JWK set of 256-bit keys; --create-key makes one"))
	}
	if len(c.Issuer) > maxIssuer || strings.ContainsFunc(c.Issuer, func(r rune) bool { return r <= ' ' || r > '~' }) {
		errs = append(errs, errors.New("--issuer: at most 512 printable ASCII characters without blanks"))
	}
	if c.MaxTTL < minMaxTTL || c.MaxTTL > maxMaxTTL {
		errs = append(errs, fmt.Errorf("--max-ttl: %v is not between %v and %v", c.MaxTTL, minMaxTTL, maxMaxTTL))
	}
	if err := c.schedule().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--key-rotation: %w", err))
	}
	for _, endpoint := range c.tokenEndpoints() {
		if u, err := url.Parse(endpoint); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" || len(endpoint) > maxTokenEndpoint {
			errs = append(errs, fmt.Errorf("--token-endpoints: https URLs of at most %d bytes with commas between them, as they stand in the tool catalogue", maxTokenEndpoint))
			break
		}
	}
	if c.TrustDomain != "" {
		if _, err := c.access(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// access is who may do what.
type access struct {
	issuer                       string
	trustDomain                  spiffeid.TrustDomain
	mint, exchange, assert, jwks identity.AllowList
}

// verifiers are the services that verify capabilities.
func verifiers() []string {
	return []string{"toolbroker", "statefacade", "filebroker", "modelproxy"}
}

func (c *Config) access() (access, error) {
	td, err := spiffeid.TrustDomainFromString(c.TrustDomain)
	if err != nil {
		return access{}, fmt.Errorf("--trust-domain: %w", err)
	}
	a := access{issuer: c.Issuer, trustDomain: td, exchange: mint.Exchangers(td), assert: mint.Asserters(td)}
	if a.issuer == "" {
		a.issuer = identity.Service(td, "capability").String()
	}
	controlPlane := identity.Service(td, "controlplane")
	if c.ControlPlane != "" {
		// One identity: ParseMatcher would take a pattern as well.
		if controlPlane, err = spiffeid.FromString(c.ControlPlane); err != nil {
			return access{}, fmt.Errorf("--controlplane: %w", err)
		}
		if _, sandbox := identity.InstanceUID(controlPlane); sandbox || controlPlane.Path() == "" || !controlPlane.MemberOf(td) {
			return access{}, errors.New("--controlplane: name one service of the trust domain")
		}
	}
	a.mint = identity.AllowList{identity.Exactly(controlPlane)}
	if c.JWKSCallers == "" {
		a.jwks = identity.AllowList{identity.AnySandbox(td)}
		for _, name := range verifiers() {
			a.jwks = append(a.jwks, identity.Exactly(identity.Service(td, name)))
		}
	} else if a.jwks, err = identity.ParseAllowList(strings.Split(c.JWKSCallers, ",")); err != nil {
		return access{}, fmt.Errorf("--jwks-callers: %w", err)
	}
	a.jwks = append(a.jwks, a.mint...)
	return a, nil
}

// schedule keeps a key for as long as any replica may let a token live, whatever
// this one's MaxTTL is.
func (c *Config) schedule() signingkey.Schedule {
	return signingkey.Schedule{Every: c.KeyRotation, MaxTTL: maxMaxTTL}
}

func (c *Config) tokenEndpoints() []string {
	if c.TokenEndpoints == "" {
		return nil
	}
	return strings.Split(c.TokenEndpoints, ",")
}

func (c *Config) at(location string) storeaddr.Address {
	return storeaddr.Address{Location: location, PasswordFile: c.StorePasswordFile}
}
