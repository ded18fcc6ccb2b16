package invariant

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// policyPrefix is how the names of our policies begin.
const policyPrefix = "cofferdam-sandbox-"

// terminationLog is the kubelet's terminationMessagePath unless a container names another.
const terminationLog = corev1.TerminationMessagePathDefault

// admission: it takes the templates of the installation as they are. What it refuses is tried on a real API server
// (tests/cluster).
func admission(c *checker) {
	params := c.data(system, "sandbox-admission")
	who := object{"ConfigMap", system + "/sandbox-admission"}
	if params == nil {
		c.that(false, who, "is not there: nothing could be made in %s", sandboxes)
		return
	}
	for _, rule := range []string{"images", "pods", "services", "routes", "entry", "disks"} {
		name := policyPrefix + rule
		there := slices.ContainsFunc(c.Admission, func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
		c.that(there, object{"ValidatingAdmissionPolicy", name}, "is not there")
	}
	for _, p := range c.Admission {
		if !strings.HasPrefix(p.Name, policyPrefix) {
			continue // the operator's own, about whatever it is
		}
		bound := slices.ContainsFunc(c.AdmissionBounds, func(b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return b.Spec.PolicyName == p.Name && slices.Equal(b.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) &&
				slices.Equal(c.namespaces(who, b.Spec.MatchResources.NamespaceSelector), []string{sandboxes})
		})
		c.that(bound && p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy == admissionv1.Fail, of("ValidatingAdmissionPolicy", p), "is not in force in %s alone, or is left out where it fails", sandboxes)
	}
	resolver := ""
	for _, s := range c.Services {
		if full(s) == system+"/resolver" {
			resolver = s.Spec.ClusterIP
		}
	}
	current := false // beside it there may be the worker before, while one takes the place of the other
	for _, t := range c.Templates {
		c.template(t, params, resolver)
		current = current || slices.ContainsFunc(t.Spec.PodTemplate.Spec.Containers, func(w corev1.Container) bool {
			return w.Name == workerContainer && w.Image == c.settings()["IMAGE_WORKER"]
		})
	}
	c.that(current, object{"ConfigMap", system + "/cofferdam-settings"}, "IMAGE_WORKER runs in no sandbox")
}

func (c *checker) template(t *extensions.SandboxTemplate, params map[string]string, resolver string) {
	who, s := of("SandboxTemplate", t), &t.Spec.PodTemplate.Spec
	c.that(t.Namespace == sandboxes, who, "is in another namespace")
	c.that(t.Spec.NetworkPolicyManagement == extensions.NetworkPolicyManagementUnmanaged, who, "has the controller make a policy, which opens the internet")
	c.that(t.Spec.EnvVarsInjectionPolicy == extensions.EnvVarsInjectionPolicyDisallowed, who, "lets a claim set its environment")
	c.that(t.Spec.VolumeClaimTemplatesPolicy == extensions.VolumeClaimTemplatesPolicyDisallowed, who, "lets a claim add disks")
	c.that(t.Spec.Service != nil && !*t.Spec.Service, who, "has a Service for each sandbox")
	c.that(s.RestartPolicy == corev1.RestartPolicyNever, who, "starts containers again")
	c.that(s.DNSPolicy == corev1.DNSNone && s.DNSConfig != nil && slices.Equal(s.DNSConfig.Nameservers, []string{resolver}) && params["resolver"] == resolver && resolver != "",
		who, "does not ask the resolver %s alone for names", resolver)
	class := "none"
	if s.RuntimeClassName != nil {
		class = *s.RuntimeClassName
	}
	c.that(slices.Contains(strings.Fields(params["runtime-classes"]), class), who, "has the RuntimeClass %s, which admission refuses", class)
	for _, disk := range t.Spec.VolumeClaimTemplates {
		name := disk.Spec.StorageClassName
		c.that(name != nil && *name != "none" && slices.Contains(strings.Fields(params["storage-classes"]), *name), who, "has a disk of a class that admission refuses")
	}
	var images, workers []string
	for key, image := range params {
		if strings.HasPrefix(key, "image-") {
			images = append(images, image)
		}
		if strings.HasPrefix(key, "image-worker") { // and -worker-before, during an upgrade
			workers = append(workers, image)
		}
	}
	w := c.workloadOf(who)
	for _, container := range w.containers() {
		c.that(slices.Contains(images, container.Image), who, "container %s runs %s, which admission refuses", container.Name, container.Image)
		c.that(container.RestartPolicy == nil && len(container.RestartPolicyRules) == 0, who, "container %s is started again, or is an init container that stays", container.Name)
		if container.Name != workerContainer {
			continue
		}
		c.that(slices.Contains(workers, container.Image), who, "the worker runs what is no worker's image (image-worker… of sandbox-admission)")
		_, digest, _ := strings.Cut(container.Image, "@")
		c.that(slices.Contains(container.Args, "--termination-log="+terminationLog) && (container.TerminationMessagePath == "" || container.TerminationMessagePath == terminationLog),
			who, "the worker does not leave the limit that ended it where the kubelet looks (--termination-log=%s)", terminationLog)
		c.that(c.environment(w, container)["IMAGE_DIGEST"] == digest, who, "the worker is told another digest than its own")
	}
	agents := slices.IndexFunc(s.Containers, func(a corev1.Container) bool { return a.Name == "agent" })
	if agents >= 0 {
		user := s.Containers[agents].SecurityContext
		c.that(user != nil && user.RunAsUser != nil && (s.SecurityContext == nil || s.SecurityContext.RunAsUser == nil || *user.RunAsUser != *s.SecurityContext.RunAsUser),
			who, "its agent is the user that its worker is")
	}
}
