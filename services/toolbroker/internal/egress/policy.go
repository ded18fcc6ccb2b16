package egress

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Policy says where connections may go.
type Policy struct {
	// Allow are the ranges that the operator opens although they are not public,
	// and in which HTTP may go without TLS. One that is wider than a range of
	// special use does not open that.
	Allow []netip.Prefix
	// Ports that may be connected to; empty is 443 alone.
	Ports []uint16
	// Hosts are the only names that may be asked for, in lower case; empty is any.
	Hosts []string
	// Roots are believed for TLS; nil are those of the machine.
	Roots *x509.CertPool
}

// ParsePrefixes reads ranges in CIDR form. Bits beyond the prefix have to be zero:
// who writes 10.1.2.3/8 means something else.
func ParsePrefixes(cidrs []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	var errs []error
	for _, c := range cidrs {
		p, err := netip.ParsePrefix(c)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%.60q is no range such as 10.1.0.0/16", c))
		case p != p.Masked():
			errs = append(errs, fmt.Errorf("%v has bits beyond its prefix; write %v", p, p.Masked()))
		case p.Addr().Is4In6():
			errs = append(errs, fmt.Errorf("%v: write IPv4 ranges as IPv4", p))
		case p.Bits() == 0:
			errs = append(errs, fmt.Errorf("%v opens nothing: a range of special use is opened by a prefix that is as narrow", p))
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

// Roots reads a PEM file of authorities.
func Roots(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("egress: %s has no certificate", path)
	}
	return pool, nil
}

// URLError says what is wrong with a URL. It does not quote the URL.
type URLError struct{ Reason string }

// Error is the reason.
func (e *URLError) Error() string { return "egress: URL: " + e.Reason }

// maxURL bounds a URL, in bytes.
const maxURL = 8 << 10

// ParseURL reads an absolute http or https URL without a user in it and without a
// fragment.
func ParseURL(s string) (*url.URL, error) {
	if len(s) > maxURL {
		return nil, &URLError{"too long"}
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, &URLError{"not well-formed"}
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, &URLError{"neither https nor http"}
	case u.Opaque != "" || u.Hostname() == "":
		return nil, &URLError{"no host"}
	case u.User != nil:
		return nil, &URLError{"a user in it"}
	case u.Fragment != "":
		return nil, &URLError{"a fragment in it"}
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' || r == '%' }):
		return nil, &URLError{"a host of other characters than ASCII"}
	}
	return u, nil
}

// Port is the port that a URL of http or https names or implies.
func Port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	default:
		return "443"
	}
}

// origin is what decides whether a redirect stays where it was.
func origin(u *url.URL) string {
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + Port(u)
}

// Host is the name of the host as a Policy has it.
func Host(u *url.URL) string { return strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) }

func (p *Policy) host(u *url.URL) error {
	if len(p.Hosts) > 0 && !slices.Contains(p.Hosts, Host(u)) {
		return &URLError{"a host that is not allowed"}
	}
	return nil
}
