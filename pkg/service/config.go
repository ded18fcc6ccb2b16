package service

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/identity"
)

// envPrefix begins the name of every environment variable that a service
// reads: the flag --admin-listen falls back to COFFERDAM_ADMIN_LISTEN.
const envPrefix = "COFFERDAM_"

// Config is the configuration of one service. It embeds Base.
type Config interface {
	// Flags registers the flags with their defaults.
	Flags(fs *flag.FlagSet)
	// Validate reports everything that is wrong, joined.
	Validate() error
	base() *Base
}

// Base is the configuration that every service has.
type Base struct {
	// Listen is host:port, unix:///path, or fd://N for a listener that was
	// inherited; or several of them, separated by commas, which are served alike.
	Listen string
	// AdminListen serves /healthz, /readyz and /metrics without TLS; empty
	// serves none of them.
	AdminListen string
	Identity    identity.Config
	TrustDomain string
	LogLevel    string
	// OTLPEndpoint is the URL of an OTLP/HTTP collector; empty exports nothing.
	OTLPEndpoint string
	// DrainTimeout is how long open requests may go on after the signal to stop.
	DrainTimeout time.Duration
}

func (b *Base) base() *Base { return b }

// listens are the addresses in Listen.
func (b *Base) listens() []string { return strings.Split(b.Listen, ",") }

// Flags registers the flags that every service has.
func (b *Base) Flags(fs *flag.FlagSet) {
	fs.StringVar(&b.Listen, "listen", "", "addresses of the service with mutual TLS, separated by commas: host:port, unix:///path, or fd://N")
	fs.StringVar(&b.AdminListen, "admin-listen", "", "address of /healthz, /readyz and /metrics without TLS, in one of the same forms (default none)")
	fs.StringVar(&b.TrustDomain, "trust-domain", "", "SPIFFE trust domain, such as example.org")
	fs.StringVar(&b.LogLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&b.OTLPEndpoint, "otlp-endpoint", "", "URL of an OTLP/HTTP collector for traces (default none)")
	fs.DurationVar(&b.DrainTimeout, "drain-timeout", 10*time.Second, "how long open requests may go on after the signal to stop, at most 5m")
	b.Identity.RegisterFlags(fs)
}

// Validate checks the values that every service has.
func (b *Base) Validate() error {
	errs := []error{b.Identity.Validate()}
	for _, addr := range b.listens() {
		errs = append(errs, validListen("listen", addr))
	}
	if b.AdminListen != "" {
		errs = append(errs, validListen("admin-listen", b.AdminListen))
	}
	if _, err := spiffeid.TrustDomainFromString(b.TrustDomain); err != nil {
		errs = append(errs, fmt.Errorf("--trust-domain: %w", err))
	}
	if _, err := level(b.LogLevel); err != nil {
		errs = append(errs, err)
	}
	if b.DrainTimeout <= 0 || b.DrainTimeout > 5*time.Minute {
		errs = append(errs, fmt.Errorf("--drain-timeout: %v is not between 0 and 5m", b.DrainTimeout))
	}
	if b.OTLPEndpoint != "" {
		if u, err := url.Parse(b.OTLPEndpoint); err != nil || u.Host == "" || u.User != nil {
			errs = append(errs, errors.New("--otlp-endpoint: give a URL with a host and without credentials"))
		}
	}
	return errors.Join(errs...)
}

func level(s string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("--log-level: %q is not debug, info, warn or error", s)
	}
	return l, nil
}

// Parse fills cfg from args, and from environ (in the form of os.Environ) for
// flags that args do not set. A variable that begins with COFFERDAM_ and names
// no flag is an error: a misspelt setting must not be lost. What -help prints
// goes to help.
func Parse(name string, args, environ []string, cfg Config, help io.Writer) error {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(help)
	cfg.Flags(fs)
	fs.Usage = func() {
		_, _ = fmt.Fprintf(help, "Usage of %s:\n", name) // whoever reads it has gone away
		fs.PrintDefaults()
		_, _ = fmt.Fprintf(help, "A flag that is not given is read from the environment: -drain-timeout from %s, and so on; a variable of that prefix that names no flag is an error.\n", variable("drain-timeout"))
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; %s takes flags only", fs.Arg(0), name)
	}
	if err := fromEnviron(fs, environ); err != nil {
		return err
	}
	return cfg.Validate()
}

// variable is the name of a flag in the environment.
func variable(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func fromEnviron(fs *flag.FlagSet, environ []string) error {
	set := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
	var errs []error
	for _, kv := range slices.Sorted(slices.Values(environ)) {
		key, value, _ := strings.Cut(kv, "=")
		rest, ours := strings.CutPrefix(key, envPrefix)
		if !ours {
			continue
		}
		name := strings.ReplaceAll(strings.ToLower(rest), "_", "-")
		switch {
		case fs.Lookup(name) == nil:
			errs = append(errs, fmt.Errorf("environment variable %s names no setting of %s", key, fs.Name()))
		case !set[name]:
			if err := fs.Set(name, value); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", key, err))
			}
		}
	}
	return errors.Join(errs...)
}
