package invariant

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// services: within the cluster alone, each of them in front of pods that serve its ports. A sandbox has none.
func services(c *checker) {
	for _, s := range c.Services {
		who := of("Service", s)
		c.that(s.Spec.Type == corev1.ServiceTypeClusterIP, who, "is of type %q, not ClusterIP", s.Spec.Type)
		c.that(len(s.Spec.ExternalIPs) == 0, who, "has an address outside of the cluster")
		c.that(s.Namespace != sandboxes, who, "leads to sandboxes")
		behind := c.behind(s)
		c.that(len(behind) > 0, who, "selects no pod")
		for _, w := range behind {
			for _, p := range s.Spec.Ports {
				c.that(w.serves(target(p), protocolOf(p.Protocol)), who, "port %d leads to port %s of %s, which it has not", p.Port, new(target(p)).String(), w.name)
			}
		}
	}
}

func (c *checker) behind(s *corev1.Service) []*workload {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	return c.selected(of("Service", s), s.Namespace, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
}

func target(p corev1.ServicePort) intstr.IntOrString {
	if p.TargetPort == (intstr.IntOrString{}) {
		return intstr.FromInt32(p.Port)
	}
	return p.TargetPort
}

func protocolOf(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

// disruptions: a node can be drained, and a service stays.
func disruptions(c *checker) {
	for _, d := range c.Deployments {
		who := of("Deployment", d)
		own := c.workloadOf(who)
		c.that(slices.Contains(c.selected(who, d.Namespace, d.Spec.Selector), own), who, "does not select its own pods")
		if d.Namespace != system {
			continue
		}
		var by []string
		for _, b := range c.Disruptions {
			if b.Namespace == d.Namespace && slices.Contains(c.selected(of("PodDisruptionBudget", b), b.Namespace, b.Spec.Selector), own) {
				by = append(by, b.Name)
			}
		}
		c.that(len(by) == 1, who, "has the PodDisruptionBudgets %v: want one", by)
		c.that(c.settings()["ENVIRONMENT"] == development || d.Spec.Replicas != nil && *d.Spec.Replicas >= 2, who, "has fewer than two replicas")
	}
	for _, b := range c.Disruptions {
		who := of("PodDisruptionBudget", b)
		c.that(len(c.selected(who, b.Namespace, b.Spec.Selector)) == 1, who, "is not of one Deployment")
		c.that(b.Spec.MaxUnavailable != nil && *b.Spec.MaxUnavailable == intstr.FromInt32(1) && b.Spec.MinAvailable == nil, who, "maxUnavailable is not 1")
		c.that(b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow, who, "has a pod that is not ready hold up the drain of its node")
	}
}

func (c *checker) workloadOf(who object) *workload {
	i := slices.IndexFunc(c.workloads, func(w *workload) bool { return w.object == who })
	return c.workloads[i]
}
