package invariant

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// url is a Service of the cluster as a container is told it.
var url = regexp.MustCompile(`[a-z]+://(?:[^@/\s]+@)?([a-z0-9-]+)\.([a-z0-9-]+)\.svc\.cluster\.local:(\d+)`)

// arrows: whom a container is told of is there, and may be reached; and between two pods that are both ours no policy
// opens one end alone.
func arrows(c *checker) {
	for _, client := range c.workloads {
		for _, container := range client.containers() {
			for _, arg := range container.Args {
				text, _ := expand(arg, c.environment(client, container))
				for _, m := range url.FindAllStringSubmatch(text, -1) {
					for _, caller := range c.callers(client, arg) {
						c.reach(caller, m[2]+"/"+m[1], m[3])
					}
				}
			}
		}
		for _, server := range c.workloads {
			for _, container := range server.containers() {
				for _, p := range container.Ports {
					out, in := c.lets(client, server, intstr.FromInt32(p.ContainerPort))
					c.that(out == in || server.namespace == "kube-system", client, "may reach port %d of %s by the policy of one end alone", p.ContainerPort, server.name)
				}
			}
		}
	}
}

// toldWorkers are flags of the control plane whose addresses it passes on to workers; those in the second list it calls
// itself too.
func toldWorkers() (only, too []string) {
	return []string{"--statefacade", "--modelproxy"}, []string{"--capability", "--toolbroker", "--filebroker"}
}

// callers are who calls what stands in an argument.
func (c *checker) callers(w *workload, arg string) []*workload {
	only, too := toldWorkers()
	flag, _, _ := strings.Cut(arg, "=")
	if w.name != system+"/controlplane" || !slices.Contains(only, flag) && !slices.Contains(too, flag) {
		return []*workload{w}
	}
	var out []*workload
	if slices.Contains(too, flag) {
		out = append(out, w)
	}
	for _, s := range c.workloads {
		if s.sandbox {
			out = append(out, s)
		}
	}
	return out
}

func (c *checker) reach(client *workload, service, port string) {
	i := slices.IndexFunc(c.Services, func(s *corev1.Service) bool { return full(s) == service })
	if i < 0 {
		c.that(false, client, "is told of the Service %s, which is not there", service)
		return
	}
	s := c.Services[i]
	p := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return strconv.Itoa(int(p.Port)) == port })
	if p < 0 {
		c.that(false, client, "is told of port %s of the Service %s, which it has not", port, service)
		return
	}
	for _, server := range c.behind(s) {
		out, in := c.lets(client, server, target(s.Spec.Ports[p]))
		c.that(out && in, client, "is told of %s, and no policy lets it there", service)
	}
	if client.sandbox {
		c.that(s.Labels["cofferdam.dev/resolvable"] == "true", client, "is told of %s, which the resolver does not know", service)
	}
}
