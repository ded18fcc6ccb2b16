package catalogue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"

	"cofferdam.dev/services/toolbroker/internal/delegate"
	"cofferdam.dev/services/toolbroker/internal/fetch"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// namespaceBuiltin is that of the tools that need no server.
const namespaceBuiltin = "builtin"

// Builtin are the tools that need no server, each of which is off unless it
// stands here.
type Builtin struct {
	HTTPFetch *HTTPFetch `json:"http_fetch,omitempty"`
	Delegate  *Delegate  `json:"delegate,omitempty"`
}

// Delegate lets agents delegate to others by builtin.delegate. Which agent may
// delegate to which stands in the catalogue of agents.
type Delegate struct {
	// Approval, Risk, MaxResultBytes and Limits are as of a server.
	Approval       string  `json:"approval,omitempty"`
	Risk           string  `json:"risk,omitempty"`
	MaxResultBytes int     `json:"max_result_bytes,omitempty"`
	Limits         *Limits `json:"limits,omitempty"`
	// Timeout of a call, within which the other agent has to be done: 10m by default,
	// which is the most.
	Timeout string `json:"timeout,omitempty"`
}

// HTTPFetch lets builtin.http_fetch get text from some hosts. It is a tool like
// any other: capability, OpenFGA and approval apply.
type HTTPFetch struct {
	// Hosts are the exact names that may be asked, in lower case. There is no
	// wildcard: who owns a name beside it is not known.
	Hosts []string `json:"hosts"`
	// Ports that may be asked; 443 alone by default.
	Ports []uint16 `json:"ports,omitempty"`
	// Egress, Approval, Risk, Timeout, MaxResultBytes and Limits are as of a server.
	Egress         *Egress `json:"egress,omitempty"`
	Approval       string  `json:"approval,omitempty"`
	Risk           string  `json:"risk,omitempty"`
	Timeout        string  `json:"timeout,omitempty"`
	MaxResultBytes int     `json:"max_result_bytes,omitempty"`
	Limits         *Limits `json:"limits,omitempty"`
}

var hostPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

const maxHosts = 256

func (b *Builtin) validate(say say) {
	if d := b.Delegate; d != nil {
		validatePolicy(say, d.Approval, d.Risk, d.Timeout, d.MaxResultBytes)
		d.Limits.validate(say)
	}
	f := b.HTTPFetch
	if f == nil {
		return
	}
	if len(f.Hosts) == 0 || len(f.Hosts) > maxHosts {
		say("http_fetch.hosts: name 1 to %d", maxHosts)
	}
	for _, h := range f.Hosts {
		if !hostPattern.MatchString(h) {
			say("http_fetch.hosts: %.40q is no name of a host in lower case", h)
		}
	}
	f.Egress.validate(say)
	validatePolicy(say, f.Approval, f.Risk, f.Timeout, f.MaxResultBytes)
	f.Limits.validate(say)
}

// server is the tool as one of a server that is always there.
func (f *HTTPFetch) server() Server {
	return Server{
		Namespace: namespaceBuiltin, Transport: transportBuiltin, Tools: []string{fetch.Tool}, ReadOnly: true, Egress: f.Egress,
		Approval: f.Approval, Risk: f.Risk, Timeout: f.Timeout, MaxResultBytes: f.MaxResultBytes, Limits: f.Limits,
	}
}

// server is the tool as one of a server that is always there.
func (d *Delegate) server() Server {
	return Server{
		Namespace: namespaceBuiltin, Transport: transportBuiltin, Tools: []string{delegate.Tool},
		Approval: d.Approval, Risk: d.Risk, Timeout: cmp.Or(d.Timeout, maxTimeout.String()), MaxResultBytes: d.MaxResultBytes, Limits: d.Limits,
	}
}

// builtin is what needs no server.
type builtin func() peer

func (b builtin) connect(context.Context) (peer, error) { return b(), nil }

func (builtin) redactor() project.Redactor { return project.Redactor{} }

// addBuiltin adds those that the operator wants.
func (c *Catalogue) addBuiltin(b *Builtin, o Options) error {
	if b == nil {
		return nil
	}
	if f := b.HTTPFetch; f != nil {
		p, err := f.Egress.policy()
		if err != nil {
			return fmt.Errorf("catalogue: http_fetch: %w", err)
		}
		p.Hosts, p.Ports = f.Hosts, f.Ports
		if err := c.add(f.server(), builtin(func() peer { return fetch.New(p) }), o); err != nil {
			return fmt.Errorf("catalogue: http_fetch: %w", err)
		}
	}
	if d := b.Delegate; d != nil {
		if o.Runs == nil {
			return errors.New("catalogue: builtin: delegate: the control plane runs the agents: give --controlplane-url and --controlplane-id")
		}
		if err := c.add(d.server(), builtin(func() peer { return delegate.New(o.Runs) }), o); err != nil {
			return fmt.Errorf("catalogue: delegate: %w", err)
		}
	}
	return nil
}
