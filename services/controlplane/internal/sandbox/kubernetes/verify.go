package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
)

// workloadAPIDriver is the CSI driver that brings a pod its identity.
const workloadAPIDriver = "csi.spiffe.io"

// errProfile is what every refusal of verify is.
const errProfile = verdict("the pod is not what the profile allows")

// verify compares what answers to a claim with its profile. Admission has refused what
// is not so, where it is in place; this looks at the pod that there is. The error names
// every difference.
func (p *Profile) verify(a answer) error {
	v := &check{}
	v.that(a.claim.Spec.WarmPoolRef.Name == p.WarmPool, "the claim is of another pool")
	v.that(len(a.claim.Spec.Env) == 0, "the claim sets an environment")
	v.that(p.PersistentVolumes || len(a.claim.Spec.VolumeClaimTemplates) == 0, "the claim has volumes")
	v.that(a.sandbox.Annotations[agents.SandboxTemplateRefAnnotation] == p.Template, "the sandbox is of another template")
	v.that(a.sandbox.Spec.OperatingMode != agents.SandboxOperatingModeSuspended, "the sandbox is suspended")
	p.pod(v, &a.pod.Spec)
	unconfined(v, a.pod)
	p.containers(v, a.pod)
	p.volumes(v, a)
	p.signatures(v)
	if len(v.wrong) > 0 {
		return fmt.Errorf("%w: %s", errProfile, strings.Join(v.wrong, "; "))
	}
	return nil
}

type check struct{ wrong []string }

func (c *check) that(ok bool, otherwise string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, fmt.Sprintf(otherwise, args...))
	}
}

func (p *Profile) pod(v *check, s *corev1.PodSpec) {
	runtimeClass := ""
	if s.RuntimeClassName != nil {
		runtimeClass = *s.RuntimeClassName
	}
	v.that(runtimeClass == p.RuntimeClass, "RuntimeClass is %q", runtimeClass)
	v.that(s.ServiceAccountName == p.ServiceAccount, "service account is %q", s.ServiceAccountName)
	v.that(is(s.AutomountServiceAccountToken, false), "the token of its service account is mounted")
	v.that(s.RestartPolicy == corev1.RestartPolicyNever, "restartPolicy is %q: a container that starts again would be an unbound worker with an old identity", s.RestartPolicy)
	v.that(!s.HostNetwork && !s.HostPID && !s.HostIPC, "it shares a namespace of its node")
	v.that(s.ShareProcessNamespace == nil || !*s.ShareProcessNamespace, "its containers share one process namespace")
	v.that(len(s.EphemeralContainers) == 0, "it has ephemeral containers")
	v.that(s.DNSPolicy == corev1.DNSNone, "dnsPolicy is %q: only with None are names asked of the sandboxes' resolver alone", s.DNSPolicy)
	v.that(len(s.HostAliases) == 0, "it has hostAliases")
	v.that(len(s.ResourceClaims) == 0, "it claims devices (resourceClaims)")
	if c := s.SecurityContext; c != nil {
		v.that(len(c.Sysctls) == 0, "it sets sysctls")
		v.that(c.WindowsOptions == nil, "it has Windows options")
		modules(v, "the pod", c.SELinuxOptions, c.AppArmorProfile)
	}
}

// unconfined sees to what older pods say of AppArmor.
func unconfined(v *check, pod *corev1.Pod) {
	for key, profile := range pod.Annotations {
		v.that(!strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) || profile != corev1.DeprecatedAppArmorBetaProfileNameUnconfined,
			"annotation %s switches AppArmor off", key)
	}
}

// containerTypes are the types of SELinux that a container is held by, as in Pod Security.
var containerTypes = []string{"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

// modules sees that nothing is taken out of what the node's security modules hold.
func modules(v *check, who string, linux *corev1.SELinuxOptions, armor *corev1.AppArmorProfile) {
	if linux != nil {
		v.that(slices.Contains(containerTypes, linux.Type) && linux.User == "" && linux.Role == "", "%s sets its type, user or role of SELinux", who)
	}
	v.that(armor == nil || armor.Type != corev1.AppArmorProfileTypeUnconfined, "%s switches AppArmor off", who)
}

func (p *Profile) containers(v *check, pod *corev1.Pod) {
	want := map[string]string{p.WorkerContainer: p.Image}
	if p.AgentImage != "" {
		want[p.AgentContainer] = p.AgentImage
	}
	inits := map[string]string{}
	for _, name := range p.InitContainers {
		inits[name] = p.Image
	}
	matches(v, pod, pod.Spec.Containers, want, pod.Status.ContainerStatuses)
	matches(v, pod, pod.Spec.InitContainers, inits, pod.Status.InitContainerStatuses)
}

// matches sees that there are these containers, no more and no fewer, that each is to
// run its image and does.
func matches(v *check, pod *corev1.Pod, have []corev1.Container, want map[string]string, statuses []corev1.ContainerStatus) {
	v.that(len(have) == len(want), "it has %d containers where the profile names %d", len(have), len(want))
	seen := map[string]bool{}
	for i := range have {
		c := &have[i]
		image, named := want[c.Name]
		v.that(!seen[c.Name], "it has two containers %q", c.Name)
		seen[c.Name] = true
		if !named {
			v.that(false, "it has a container %q, which the profile does not name", c.Name)
			continue
		}
		v.that(c.Image == image, "container %s is to run %s", c.Name, c.Image)
		confined(v, pod.Spec.SecurityContext, c)
		limited(v, c)
		n := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
		if n < 0 {
			v.that(false, "container %s has no status", c.Name)
			continue
		}
		v.that(digestOf(statuses[n].ImageID) == digestOf(image), "container %s runs %s", c.Name, statuses[n].ImageID)
		v.that(statuses[n].RestartCount == 0, "container %s was started again", c.Name)
	}
}

// confined sees to the security context of one container, with what it inherits.
func confined(v *check, pod *corev1.PodSecurityContext, c *corev1.Container) {
	s := c.SecurityContext
	if s == nil {
		s = &corev1.SecurityContext{}
	}
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	nonRoot, user, seccomp := s.RunAsNonRoot, s.RunAsUser, s.SeccompProfile
	if nonRoot == nil {
		nonRoot = pod.RunAsNonRoot
	}
	if user == nil {
		user = pod.RunAsUser
	}
	if seccomp == nil {
		seccomp = pod.SeccompProfile
	}
	v.that(is(nonRoot, true) && (user == nil || *user != 0), "container %s may run as root", c.Name)
	v.that(seccomp != nil && seccomp.Type == corev1.SeccompProfileTypeRuntimeDefault, "container %s has not the seccomp profile RuntimeDefault", c.Name)
	v.that(s.Privileged == nil || !*s.Privileged, "container %s is privileged", c.Name)
	v.that(is(s.AllowPrivilegeEscalation, false), "container %s may gain privileges", c.Name)
	v.that(is(s.ReadOnlyRootFilesystem, true), "container %s can write to its root", c.Name)
	v.that(s.Capabilities != nil && slices.Contains(s.Capabilities.Drop, "ALL") && len(s.Capabilities.Add) == 0, "container %s has capabilities", c.Name)
	v.that(s.ProcMount == nil || *s.ProcMount == corev1.DefaultProcMount, "container %s sees an unmasked /proc", c.Name)
	v.that(c.RestartPolicy == nil, "container %s has a restart policy of its own", c.Name)
	v.that(len(c.VolumeDevices) == 0, "container %s has devices", c.Name)
	v.that(!slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil }) &&
		!slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil }),
		"container %s takes its environment from secrets", c.Name)
	v.that(!slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }), "container %s has a port of its node", c.Name)
	v.that(c.Lifecycle == nil, "container %s has hooks", c.Name)
	modules(v, "container "+c.Name, s.SELinuxOptions, s.AppArmorProfile)
}

// limited sees that a container cannot have all of its node. A limit of 0 is none.
func limited(v *check, c *corev1.Container) {
	for _, of := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		limit := c.Resources.Limits[of]
		v.that(limit.Sign() > 0, "container %s has no limit of %s", c.Name, of)
	}
}

// volumes lets in what holds no credential and nothing of the node. The Workload API is
// the worker's alone: who reaches it is the worker.
func (p *Profile) volumes(v *check, a answer) {
	s, identity := &a.pod.Spec, map[string]bool{}
	for i := range s.Volumes {
		volume := &s.Volumes[i]
		switch {
		case volume.EmptyDir != nil, volume.ConfigMap != nil, volume.DownwardAPI != nil:
		case volume.CSI != nil && volume.CSI.Driver == workloadAPIDriver && is(volume.CSI.ReadOnly, true):
			identity[volume.Name] = true
		case volume.PersistentVolumeClaim != nil && p.PersistentVolumes:
			v.that(madeWith(a.sandbox, volume), "volume %s is a disk that was not made with the sandbox", volume.Name)
		case volume.Projected != nil && harmless(volume.Projected):
		default:
			v.that(false, "volume %s is of a kind that a sandbox may not have", volume.Name)
		}
	}
	for _, c := range slices.Concat(s.Containers, s.InitContainers) {
		if c.Name == p.WorkerContainer {
			continue
		}
		v.that(!slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return identity[m.Name] }),
			"container %s reaches the Workload API of the worker", c.Name)
	}
}

// madeWith reports whether a disk is one that the controller makes with a sandbox and deletes
// with it, by the name that it gives it. Any other may be somebody else's as well.
func madeWith(s *agents.Sandbox, volume *corev1.Volume) bool {
	return slices.ContainsFunc(s.Spec.VolumeClaimTemplates, func(t agents.PersistentVolumeClaimTemplate) bool {
		return t.Name == volume.Name && t.Name+"-"+s.Name == volume.PersistentVolumeClaim.ClaimName
	})
}

func harmless(p *corev1.ProjectedVolumeSource) bool {
	return !slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool { return s.ConfigMap == nil && s.DownwardAPI == nil })
}

func (p *Profile) signatures(v *check) {
	if p.Unsigned {
		return
	}
	v.that(p.signature != nil && p.signature.Verify(p.digest()) == nil, "the image is not signed")
	v.that(p.AgentImage == "" || p.agentSignature != nil && p.agentSignature.Verify(digestOf(p.AgentImage)) == nil, "the agent's image is not signed")
}

func is(b *bool, want bool) bool { return b != nil && *b == want }
