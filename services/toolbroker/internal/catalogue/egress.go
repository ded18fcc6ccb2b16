package catalogue

import (
	"net/url"
	"path/filepath"
	"strconv"

	"cofferdam.dev/services/toolbroker/internal/egress"
)

// Egress says where connections for one server may go.
type Egress struct {
	// AllowCIDRs are ranges that are opened although they are not public, such as
	// "10.1.0.0/16", and in which HTTP may go without TLS.
	AllowCIDRs []string `json:"allow_cidrs,omitempty"`
	// CAFile is a PEM file of the authorities that are believed in place of those
	// of the machine.
	CAFile string `json:"ca_file,omitempty"`
}

func (e *Egress) validate(say say) {
	if e == nil {
		return
	}
	if _, err := egress.ParsePrefixes(e.AllowCIDRs); err != nil {
		say("egress.allow_cidrs: %w", err)
	}
	if e.CAFile != "" && !filepath.IsAbs(e.CAFile) {
		say("egress.ca_file: an absolute path")
	}
}

// policy is that of connections to the ports of the URLs.
func (e *Egress) policy(targets ...string) (egress.Policy, error) {
	var p egress.Policy
	var err error
	if e != nil {
		if p.Allow, err = egress.ParsePrefixes(e.AllowCIDRs); err != nil {
			return egress.Policy{}, err
		}
		if e.CAFile != "" {
			if p.Roots, err = egress.Roots(e.CAFile); err != nil {
				return egress.Policy{}, err
			}
		}
	}
	for _, target := range targets {
		u, err := egress.ParseURL(target)
		if err != nil {
			return egress.Policy{}, err
		}
		port, err := portOf(u)
		if err != nil {
			return egress.Policy{}, err
		}
		p.Ports = append(p.Ports, port)
		p.Hosts = append(p.Hosts, egress.Host(u))
	}
	return p, nil
}

func portOf(u *url.URL) (uint16, error) {
	n, err := strconv.ParseUint(egress.Port(u), 10, 16)
	return uint16(n), err
}
