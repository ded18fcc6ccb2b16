package invariant

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// readers are who may mount a Secret, by its name.
func readers() map[string][]string {
	return map[string][]string{
		"store-password":   {"capability", "controlplane", "filebroker", "modelproxy", "statefacade", "toolbroker"},
		"capability-keys":  {"capability"},
		"binding-id-key":   {"controlplane"},
		"openfga-key":      {"controlplane", "toolbroker"},
		"blob-credentials": {"filebroker", "statefacade"},
		"model-keys":       {"modelproxy"},
		"tool-credentials": {"toolbroker"},
	}
}

// secrets: each is a file in the service that needs it, and nowhere else.
func secrets(c *checker) {
	for _, w := range c.workloads {
		for _, container := range w.containers() {
			for _, e := range container.Env {
				c.that(e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil, w, "container %s has a secret in its environment", container.Name)
			}
			for _, e := range container.EnvFrom {
				c.that(e.SecretRef == nil, w, "container %s has its environment of a secret", container.Name)
			}
		}
		for _, v := range w.spec.Volumes {
			if v.Projected != nil {
				for _, source := range v.Projected.Sources {
					c.that(source.Secret == nil, w, "volume %s has a secret among other things", v.Name)
				}
			}
			if v.Secret == nil {
				continue
			}
			name := v.Secret.SecretName
			may := w.namespace == system && slices.Contains(readers()[name], strings.TrimPrefix(w.name, system+"/")) ||
				w.namespace == "cofferdam-dev" && w.name == "cofferdam-dev/openfga" && name == "openfga-key"
			c.that(may, w, "mounts the secret %s, which is not its own", name)
			c.that(v.Secret.DefaultMode != nil && *v.Secret.DefaultMode&0o077 == 0, w, "volume %s can be read by others than its owner", v.Name)
		}
	}
	for name, accounts := range readers() {
		for _, account := range accounts {
			c.that(c.mounts(account, name), object{"Deployment", system + "/" + account}, "does not mount the secret %s", name)
		}
	}
}

func (c *checker) mounts(deployment, secret string) bool {
	for _, w := range c.workloads {
		if w.object == (object{"Deployment", system + "/" + deployment}) {
			for _, v := range w.spec.Volumes {
				if v.Secret != nil && v.Secret.SecretName == secret {
					return true
				}
			}
		}
	}
	return false
}

// tokens: two ask the API server, and the cluster's DNS of development.
func tokens(c *checker) {
	allowed := []string{system + "/controlplane", system + "/resolver", "kube-system/cofferdam-dns"}
	for _, w := range c.workloads {
		for _, v := range w.spec.Volumes {
			if v.Projected == nil {
				continue
			}
			for _, source := range v.Projected.Sources {
				if t := source.ServiceAccountToken; t != nil {
					c.that(w.kind == "Deployment" && slices.Contains(allowed, w.name), w, "has a token of the API server")
					c.that(t.Audience == "" && t.ExpirationSeconds != nil && *t.ExpirationSeconds <= 3600, w, "has a token for longer than an hour, or for somebody else")
				}
			}
		}
		account := w.namespace + "/" + w.account()
		found := slices.IndexFunc(c.Accounts, func(a *corev1.ServiceAccount) bool { return full(a) == account })
		if found < 0 {
			c.that(w.namespace == "cofferdam-dev", w, "its account %s is not there", account)
			continue
		}
		c.that(is(c.Accounts[found].AutomountServiceAccountToken, false), of("ServiceAccount", c.Accounts[found]), "automountServiceAccountToken is not false")
	}
}

// references: what a pod names is there.
func references(c *checker) {
	for _, w := range c.workloads {
		volumes := map[string]bool{}
		for _, v := range w.spec.Volumes {
			volumes[v.Name] = false
			if m := v.ConfigMap; m != nil && (m.Optional == nil || !*m.Optional) {
				c.that(c.data(w.namespace, m.Name) != nil, w, "volume %s is of the ConfigMap %s, which is not there", v.Name, m.Name)
			}
		}
		if w.sandbox { // a disk of its own for each sandbox
			for _, t := range c.disks(w) {
				volumes[t] = false
			}
		}
		for _, container := range w.containers() {
			for _, m := range container.VolumeMounts {
				_, there := volumes[m.Name]
				c.that(there, w, "container %s mounts %s, which is not there", container.Name, m.Name)
				volumes[m.Name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(volumes)) {
			c.that(volumes[name], w, "volume %s is mounted nowhere", name)
		}
	}
	for _, p := range c.Pools {
		c.that(slices.ContainsFunc(c.Templates, func(t *extensions.SandboxTemplate) bool {
			return t.Namespace == p.Namespace && t.Name == p.Spec.TemplateRef.Name
		}), of("SandboxWarmPool", p), "its template %s is not there", p.Spec.TemplateRef.Name)
	}
}

// disks are the volumes that the controller adds to a template's pods.
func (c *checker) disks(w *workload) []string {
	var out []string
	for _, t := range c.Templates {
		if full(t) == w.name {
			for _, v := range t.Spec.VolumeClaimTemplates {
				out = append(out, v.Name)
			}
		}
	}
	return out
}
