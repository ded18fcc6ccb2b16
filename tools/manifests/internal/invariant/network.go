package invariant

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// policies: each is about pods that there are, and about ports that they serve. Without one that closes a namespace both
// ways the others would mean nothing.
func policies(c *checker) {
	for _, n := range c.Namespaces {
		closed := slices.ContainsFunc(c.Policies, func(p *networkingv1.NetworkPolicy) bool {
			s := p.Spec
			return p.Namespace == n.Name && len(s.PodSelector.MatchLabels)+len(s.PodSelector.MatchExpressions) == 0 && len(s.Ingress)+len(s.Egress) == 0 &&
				directed(p, networkingv1.PolicyTypeIngress) && directed(p, networkingv1.PolicyTypeEgress)
		})
		c.that(closed, of("Namespace", n), "is not closed by default both ways")
	}
	for _, p := range c.Policies {
		who := of("NetworkPolicy", p)
		c.that(len(p.Spec.Ingress) == 0 || directed(p, networkingv1.PolicyTypeIngress), who, "its ingress is no rule of its types")
		c.that(len(p.Spec.Egress) == 0 || directed(p, networkingv1.PolicyTypeEgress), who, "its egress is no rule of its types")
		own := c.selected(who, p.Namespace, &p.Spec.PodSelector)
		c.that(len(own) > 0, who, "selects no pod")
		for _, rule := range p.Spec.Ingress {
			c.that(len(rule.From) > 0, who, "lets everybody in")
			c.peers(who, p.Namespace, rule.From)
			c.ports(who, own, rule.Ports)
		}
		for _, rule := range p.Spec.Egress {
			c.that(len(rule.To) > 0, who, "lets out to everybody")
			c.ports(who, c.peers(who, p.Namespace, rule.To), rule.Ports)
		}
	}
}

func directed(p *networkingv1.NetworkPolicy, way networkingv1.PolicyType) bool {
	return slices.Contains(p.Spec.PolicyTypes, way)
}

// peers are the workloads of an installation that a rule names. One that names none of them names an address, or a
// namespace of somebody else.
func (c *checker) peers(who object, namespace string, peers []networkingv1.NetworkPolicyPeer) []*workload {
	var out []*workload
	for _, peer := range peers {
		if peer.IPBlock != nil {
			c.that(!strings.HasSuffix(peer.IPBlock.CIDR, "/0"), who, "names every address")
			continue
		}
		where := []string{namespace}
		if peer.NamespaceSelector != nil {
			where = c.namespaces(who, peer.NamespaceSelector)
			named := peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
			c.that(named != "", who, "names no namespace")
			if len(where) == 0 && !strings.HasPrefix(named, "cofferdam") && !c.has(named) {
				continue
			}
			if c.has(named) && len(where) == 0 {
				where = []string{named} // of the cluster, with pods of the installation
			}
		}
		found := 0
		for _, n := range where {
			if peer.PodSelector == nil {
				continue
			}
			selected := c.selected(who, n, peer.PodSelector)
			found += len(selected)
			out = append(out, selected...)
		}
		c.that(found > 0, who, "names a peer that is no pod: %s", peer.String())
	}
	return out
}

// has reports whether the installation has pods in a namespace.
func (c *checker) has(namespace string) bool {
	return slices.ContainsFunc(c.workloads, func(w *workload) bool { return w.namespace == namespace })
}

func (c *checker) ports(who object, servers []*workload, ports []networkingv1.NetworkPolicyPort) {
	c.that(len(ports) > 0, who, "opens every port")
	for _, p := range ports {
		if p.Port == nil || p.EndPort != nil {
			c.that(false, who, "opens a range of ports")
			continue
		}
		for _, w := range servers {
			c.that(w.serves(*p.Port, portProtocol(p)), who, "opens port %s of %s, which it has not", p.Port.String(), w.name)
		}
	}
}

// lets reports whether a client may come to a port of a server: out of its own namespace, and into the other.
func (c *checker) lets(client, server *workload, port intstr.IntOrString) (out, in bool) {
	for _, p := range c.Policies {
		who := of("NetworkPolicy", p)
		quiet := &checker{Installation: c.Installation, workloads: c.workloads} // policies has said what is wrong with them
		own := quiet.selected(who, p.Namespace, &p.Spec.PodSelector)
		if p.Namespace == client.namespace && slices.Contains(own, client) {
			for _, rule := range p.Spec.Egress {
				out = out || opens(server, rule.Ports, port) && slices.Contains(quiet.peers(who, p.Namespace, rule.To), server)
			}
		}
		if p.Namespace == server.namespace && slices.Contains(own, server) {
			for _, rule := range p.Spec.Ingress {
				in = in || opens(server, rule.Ports, port) && slices.Contains(quiet.peers(who, p.Namespace, rule.From), client)
			}
		}
	}
	return out, in
}

func opens(server *workload, ports []networkingv1.NetworkPolicyPort, port intstr.IntOrString) bool {
	return slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return p.Port != nil && (*p.Port == port || server.number(*p.Port) == server.number(port))
	})
}

// number is that of a port of a pod, by name or by itself.
func (w *workload) number(port intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, container := range w.containers() {
		for _, p := range container.Ports {
			if p.Name == port.StrVal {
				return p.ContainerPort
			}
		}
	}
	return 0
}

func portProtocol(p networkingv1.NetworkPolicyPort) corev1.Protocol {
	if p.Protocol == nil {
		return corev1.ProtocolTCP
	}
	return *p.Protocol
}
