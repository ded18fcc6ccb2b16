package invariant

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// variables: what stands as $(NAME) in an argument has a value.
func variables(c *checker) {
	for _, w := range c.workloads {
		for _, container := range w.containers() {
			for _, e := range container.EnvFrom {
				c.that(e.ConfigMapRef == nil || c.data(w.namespace, e.ConfigMapRef.Name) != nil, w, "container %s has its environment of the ConfigMap %s, which is not there", container.Name, nameOf(e))
			}
			values := c.environment(w, container)
			for _, text := range append(append([]string(nil), container.Command...), container.Args...) {
				_, missing := expand(text, values)
				for _, name := range missing {
					c.that(false, w, "container %s names $(%s), which has no value", container.Name, name)
				}
			}
		}
	}
}

func nameOf(e corev1.EnvFromSource) string {
	if e.ConfigMapRef == nil {
		return ""
	}
	return e.ConfigMapRef.Name
}

// environment is that of a container; what only a pod that runs has is "a value".
func (c *checker) environment(w *workload, container *corev1.Container) map[string]string {
	values := map[string]string{}
	for _, e := range container.EnvFrom {
		maps.Copy(values, c.data(w.namespace, nameOf(e)))
	}
	for _, e := range container.Env {
		values[e.Name] = e.Value
		if e.ValueFrom != nil {
			values[e.Name] = "a value"
		}
	}
	return values
}
