package invariant

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var pinned = regexp.MustCompile(`^[^@:]+(:\d+/[^@:]+)?@sha256:[0-9a-f]{64}$`)

// pods: what no pod may do to its node, and what each says of itself.
func pods(c *checker) {
	for _, w := range c.workloads {
		s := w.spec
		c.that(!s.HostNetwork && !s.HostPID && !s.HostIPC, w, "shares a namespace of its node")
		c.that(s.ShareProcessNamespace == nil || !*s.ShareProcessNamespace, w, "its containers see each other's processes")
		c.that(s.AutomountServiceAccountToken != nil && !*s.AutomountServiceAccountToken, w, "automountServiceAccountToken is not false")
		c.that(s.EnableServiceLinks != nil && !*s.EnableServiceLinks, w, "enableServiceLinks is not false")
		root := c.mayBeRoot(w)
		for _, v := range s.Volumes {
			c.that(v.HostPath == nil || root, w, "volume %s is a folder of its node", v.Name)
			c.that(v.EmptyDir == nil || v.EmptyDir.SizeLimit != nil, w, "volume %s has no sizeLimit", v.Name)
		}
		for _, container := range w.containers() {
			c.that(pinned.MatchString(container.Image), w, "container %s runs %s, which is not pinned by a digest alone", container.Name, container.Image)
			for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
				limit, limited := container.Resources.Limits[resource]
				request, requested := container.Resources.Requests[resource]
				c.that(limited && limit.Sign() > 0, w, "container %s has no limit of %s", container.Name, resource)
				c.that(requested && request.Cmp(limit) <= 0, w, "container %s requests no %s within its limit", container.Name, resource)
			}
			for _, port := range container.Ports {
				c.that(port.HostPort == 0, w, "container %s has a port of its node", container.Name)
			}
			if !root {
				c.confined(w, container)
			}
		}
	}
}

// mayBeRoot: cofferdam-nodeidentity mounts into pods. It stands for SPIRE in development, and nowhere else.
func (c *checker) mayBeRoot(w *workload) bool {
	return w.object == object{"DaemonSet", "cofferdam-identity/nodeidentity"} && c.settings()["ENVIRONMENT"] == development
}

func (c *checker) confined(w *workload, container *corev1.Container) {
	s, pod := container.SecurityContext, w.spec.SecurityContext
	if s == nil || pod == nil {
		c.that(false, w, "container %s has no security context", container.Name)
		return
	}
	user := pod.RunAsUser
	if s.RunAsUser != nil {
		user = s.RunAsUser
	}
	c.that(is(pod.RunAsNonRoot, true) && (s.RunAsNonRoot == nil || *s.RunAsNonRoot) && user != nil && *user > 0, w, "container %s may run as root", container.Name)
	c.that(is(s.AllowPrivilegeEscalation, false) && !is(s.Privileged, true), w, "container %s may gain privileges", container.Name)
	c.that(is(s.ReadOnlyRootFilesystem, true), w, "container %s can write to its root", container.Name)
	c.that(s.Capabilities != nil && slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(s.Capabilities.Add) == 0, w, "container %s has capabilities", container.Name)
	c.that(pod.SeccompProfile != nil && pod.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault && s.SeccompProfile == nil, w, "container %s has not the seccomp profile RuntimeDefault", container.Name)
}

func is(b *bool, want bool) bool { return b != nil && *b == want }

// probes: a service says when it serves, and when it has to be started again; a worker is never started again.
func probes(c *checker) {
	for _, w := range c.workloads {
		if strings.HasPrefix(w.kind, "Daemon") {
			continue
		}
		for i := range w.spec.Containers {
			container := &w.spec.Containers[i]
			if w.sandbox && container.Name != workerContainer {
				c.that(container.LivenessProbe == nil && container.ReadinessProbe == nil && container.StartupProbe == nil, w, "container %s is probed: it answers to the worker alone", container.Name)
				continue
			}
			c.that(container.ReadinessProbe != nil, w, "container %s has no readinessProbe", container.Name)
			if w.namespace == system {
				c.that(container.LivenessProbe != nil, w, "container %s has no livenessProbe", container.Name)
			}
			if w.service || w.sandbox {
				c.that(container.StartupProbe != nil, w, "container %s has no startupProbe: it gets its identity first", container.Name)
			}
			c.that(!w.sandbox || container.LivenessProbe == nil, w, "container %s has a livenessProbe", container.Name)
			for _, p := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe, container.StartupProbe} {
				if port, ok := probed(p); ok {
					c.that(hasPort(container, port, corev1.ProtocolTCP), w, "container %s is probed at port %s, which it has not", container.Name, port.String())
				}
			}
		}
	}
}

func probed(p *corev1.Probe) (port intstr.IntOrString, ok bool) {
	switch {
	case p == nil:
		return port, false
	case p.HTTPGet != nil:
		return p.HTTPGet.Port, true
	case p.TCPSocket != nil:
		return p.TCPSocket.Port, true
	default:
		return intstr.FromString("none"), true
	}
}

func hasPort(container *corev1.Container, port intstr.IntOrString, protocol corev1.Protocol) bool {
	return slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool {
		its := p.Protocol
		if its == "" {
			its = corev1.ProtocolTCP
		}
		if its != protocol {
			return false
		}
		if port.Type == intstr.String {
			return p.Name == port.StrVal
		}
		return p.ContainerPort == port.IntVal
	})
}

// serves reports whether some container of a pod has a port.
func (w *workload) serves(port intstr.IntOrString, protocol corev1.Protocol) bool {
	return slices.ContainsFunc(w.containers(), func(container *corev1.Container) bool { return hasPort(container, port, protocol) })
}
