// Command cofferdam-dns is CoreDNS with only what the resolver of the sandboxes
// needs. DNS carries data out of a network that is otherwise closed, so what
// could pass a question on is not linked: no forward, no grpc, no hosts, file,
// template or rewrite; see docs/adr/0013-resolver.md. The Corefile can ask for
// nothing that is not in the binary.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// In the order in which a question passes them.
	dnsserver.Directives = []string{"reload", "bind", "ready", "health", "prometheus", "errors", "kubernetes"}
	coremain.Run()
}
