package workloadapi

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	defaultX509TTL = time.Hour
	defaultJWTTTL  = 5 * time.Minute
	defaultCATTL   = 24 * time.Hour

	minTTL = time.Second
	// lifetimes is how many lifetimes of an SVID an authority lives at least: it hands over when a quarter of its own
	// is left.
	lifetimes = 4
)

// Config is the configuration of a [Server].
type Config struct {
	// TrustDomain is the trust domain of every identity.
	TrustDomain spiffeid.TrustDomain
	// Dir is the directory of the sockets. It is made if it is missing, and only this user can enter it. It must belong
	// to one server alone, and its absolute path must be at most 85 bytes long: a Unix socket's path ends at 107.
	Dir string
	// X509TTL and JWTTTL are the lifetimes of SVIDs, 1 s at least; zero is 1 h and 5 min.
	X509TTL, JWTTTL time.Duration
	// CATTL is the lifetime of an authority, at least four times that of any SVID; zero is 24 h, or four times that if
	// it is longer.
	CATTL time.Duration
	// Authorities is a file with the authorities and their private keys, so that what was issued before a restart is
	// trusted after it. It is made with mode 0600 if it is not there; one that others can read is refused. Empty keeps
	// them in memory alone.
	Authorities string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger takes what happens; nil discards it.
	Logger *slog.Logger
}

// withDefaults returns c with its zero values filled in, or everything that is wrong with it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.TrustDomain.IsZero() {
		errs = append(errs, errors.New("workloadapi: a trust domain is required"))
	}
	if c.Dir == "" {
		errs = append(errs, errors.New("workloadapi: a directory is required"))
	}
	c.X509TTL = orDefault(c.X509TTL, defaultX509TTL)
	c.JWTTTL = orDefault(c.JWTTTL, defaultJWTTTL)
	longest := max(c.X509TTL, c.JWTTTL)
	c.CATTL = orDefault(c.CATTL, max(defaultCATTL, lifetimes*longest))
	if min(c.X509TTL, c.JWTTTL) < minTTL {
		errs = append(errs, fmt.Errorf("workloadapi: an SVID lives %s at least", minTTL))
	}
	if c.CATTL/lifetimes < longest {
		errs = append(errs, fmt.Errorf("workloadapi: an authority lives at least %d times as long as an SVID: %s is too short for %s",
			lifetimes, c.CATTL, longest))
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
