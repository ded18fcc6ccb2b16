package catalogue

import (
	"regexp"

	"cofferdam.dev/services/toolbroker/internal/fetch"
)

// namespaceBuiltin is that of the tools that need no server.
const namespaceBuiltin = "builtin"

// Builtin are the tools that need no server, each of which is off unless it
// stands here.
type Builtin struct {
	HTTPFetch *HTTPFetch `json:"http_fetch,omitempty"`
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
