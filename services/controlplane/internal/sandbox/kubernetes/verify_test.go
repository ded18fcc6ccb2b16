package kubernetes

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	agents "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"cofferdam.dev/services/controlplane/internal/sandbox/signature"
	"cofferdam.dev/services/controlplane/internal/sandbox/signature/signaturetest"
)

// hostedProfile has everything that a profile may name.
func hostedProfile(t *testing.T) Profile {
	t.Helper()
	signer := signaturetest.NewSigner(t)
	p := rightProfile()
	p.Unsigned, p.Harness, p.AgentImage, p.InitContainers, p.RuntimeClass = false, "acp", agentImage, []string{"runner"}, "gvisor"
	p.setDefaults()
	p.signature = signature.New(signer.Key, signer.Sign(t, digestOf(image)))
	p.agentSignature = signature.New(signer.Key, signer.Sign(t, digestOf(agentImage)))
	return p
}

func hostedAnswer() answer {
	class := "gvisor"
	pod := rightPod("pool-1", "sandbox-1", "pod-1", "claim-1")
	pod.Spec.RuntimeClassName = &class
	pod.Spec.DeprecatedServiceAccount = "worker"
	worker := pod.Spec.Containers[0]
	agent, runner := *worker.DeepCopy(), *worker.DeepCopy()
	agent.Name, agent.Image, agent.VolumeMounts = "agent", agentImage, nil
	runner.Name, runner.VolumeMounts = "runner", nil
	pod.Spec.Containers = append(pod.Spec.Containers, agent)
	pod.Spec.InitContainers = []corev1.Container{runner}
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: "agent", ImageID: agentImage})
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "runner", ImageID: image}}
	return answer{
		claim:   &extensions.SandboxClaim{Spec: extensions.SandboxClaimSpec{WarmPoolRef: extensions.SandboxWarmPoolRef{Name: "workers"}}},
		sandbox: &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{agents.SandboxTemplateRefAnnotation: "worker"}}},
		pod:     pod,
	}
}

// Each way in which a pod can be other than its profile is a refusal.
func TestVerification(t *testing.T) {
	yes, root, unmasked, always := true, int64(0), corev1.UnmaskedProcMount, corev1.ContainerRestartPolicyAlways
	other, class := strings.Replace(image, "a1", "c3", 1), "runc"
	first := func(change func(*corev1.Container)) func(*answer) {
		return func(a *answer) { change(&a.pod.Spec.Containers[0]) }
	}
	volume := func(source corev1.VolumeSource) func(*answer) {
		return func(a *answer) {
			a.pod.Spec.Volumes = append(a.pod.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: source})
		}
	}
	spec := func(change func(*corev1.PodSpec)) func(*answer) { return func(a *answer) { change(&a.pod.Spec) } }
	profile := hostedProfile(t)
	if err := profile.verify(hostedAnswer()); err != nil {
		t.Fatal(err)
	}
	told := hostedAnswer() // what the base tells a worker of its installation
	told.pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
	if err := profile.verify(told); err != nil {
		t.Errorf("settings from a ConfigMap: %v", err)
	}
	labelled := hostedAnswer() // what a cluster with SELinux gives each namespace, and its containers
	labelled.pod.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c26,c5", Type: "container_kvm_t"}
	if err := profile.verify(labelled); err != nil {
		t.Errorf("labels of SELinux: %v", err)
	}
	for name, change := range map[string]func(*answer){
		"another pool":          func(a *answer) { a.claim.Spec.WarmPoolRef.Name = "others" },
		"an environment":        func(a *answer) { a.claim.Spec.Env = []extensions.EnvVar{{Name: "A"}} },
		"a volume of the claim": func(a *answer) { a.claim.Spec.VolumeClaimTemplates = make([]agents.PersistentVolumeClaimTemplate, 1) },
		"another template":      func(a *answer) { a.sandbox.Annotations[agents.SandboxTemplateRefAnnotation] = "other" },
		"suspended":             func(a *answer) { a.sandbox.Spec.OperatingMode = agents.SandboxOperatingModeSuspended },

		"no RuntimeClass":        spec(func(s *corev1.PodSpec) { s.RuntimeClassName = nil }),
		"another RuntimeClass":   spec(func(s *corev1.PodSpec) { s.RuntimeClassName = &class }),
		"another account":        spec(func(s *corev1.PodSpec) { s.ServiceAccountName = "admin" }),
		"a token":                spec(func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = &yes }),
		"a token by default":     spec(func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = nil }),
		"restart":                spec(func(s *corev1.PodSpec) { s.RestartPolicy = corev1.RestartPolicyOnFailure }),
		"host network":           spec(func(s *corev1.PodSpec) { s.HostNetwork = true }),
		"host PID":               spec(func(s *corev1.PodSpec) { s.HostPID = true }),
		"host IPC":               spec(func(s *corev1.PodSpec) { s.HostIPC = true }),
		"shared processes":       spec(func(s *corev1.PodSpec) { s.ShareProcessNamespace = &yes }),
		"an ephemeral container": spec(func(s *corev1.PodSpec) { s.EphemeralContainers = make([]corev1.EphemeralContainer, 1) }),
		"sysctls":                spec(func(s *corev1.PodSpec) { s.SecurityContext.Sysctls = make([]corev1.Sysctl, 1) }),
		"the cluster's DNS":      spec(func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSClusterFirst }),
		"the node's DNS":         spec(func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSDefault }),
		"names of its own":       spec(func(s *corev1.PodSpec) { s.HostAliases = make([]corev1.HostAlias, 1) }),
		"devices":                spec(func(s *corev1.PodSpec) { s.ResourceClaims = make([]corev1.PodResourceClaim, 1) }),
		"SELinux": spec(func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}),
		"AppArmor": spec(func(s *corev1.PodSpec) {
			s.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}),
		"AppArmor by annotation": func(a *answer) {
			a.pod.Annotations = map[string]string{corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "worker": corev1.DeprecatedAppArmorBetaProfileNameUnconfined}
		},
		"one container more": spec(func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "more", Image: image})
		}),
		"one container twice":     spec(func(s *corev1.PodSpec) { s.Containers[1] = s.Containers[0] }),
		"one container fewer":     spec(func(s *corev1.PodSpec) { s.Containers = s.Containers[:1] }),
		"another init container":  spec(func(s *corev1.PodSpec) { s.InitContainers[0].Name = "other" }),
		"init image":              spec(func(s *corev1.PodSpec) { s.InitContainers[0].Image = other }),
		"a sidecar":               spec(func(s *corev1.PodSpec) { s.InitContainers[0].RestartPolicy = &always }),
		"root by default":         spec(func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil }),
		"no seccomp":              spec(func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil }),
		"no pod security context": spec(func(s *corev1.PodSpec) { s.SecurityContext = nil }),

		"image":         first(func(c *corev1.Container) { c.Image = other }),
		"image by tag":  first(func(c *corev1.Container) { c.Image = "registry.example/worker:latest" }),
		"root":          first(func(c *corev1.Container) { c.SecurityContext.RunAsUser = &root }),
		"privileged":    first(func(c *corev1.Container) { c.SecurityContext.Privileged = &yes }),
		"escalation":    first(func(c *corev1.Container) { c.SecurityContext.AllowPrivilegeEscalation = &yes }),
		"writable root": first(func(c *corev1.Container) { c.SecurityContext.ReadOnlyRootFilesystem = nil }),
		"capabilities":  first(func(c *corev1.Container) { c.SecurityContext.Capabilities = nil }),
		"a capability":  first(func(c *corev1.Container) { c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_RAW"} }),
		"unmasked":      first(func(c *corev1.Container) { c.SecurityContext.ProcMount = &unmasked }),
		"unconfined": first(func(c *corev1.Container) {
			c.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}),
		"no limits":               first(func(c *corev1.Container) { c.Resources.Limits = nil }),
		"no limit of cpu":         first(func(c *corev1.Container) { delete(c.Resources.Limits, corev1.ResourceCPU) }),
		"a limit of memory of 0":  first(func(c *corev1.Container) { c.Resources.Limits[corev1.ResourceMemory] = resource.Quantity{} }),
		"no limit of files":       first(func(c *corev1.Container) { delete(c.Resources.Limits, corev1.ResourceEphemeralStorage) }),
		"no limits of the runner": spec(func(s *corev1.PodSpec) { s.InitContainers[0].Resources.Limits = nil }),
		"a user of SELinux": first(func(c *corev1.Container) {
			c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{User: "system_u"}
		}),
		"a role of SELinux": first(func(c *corev1.Container) {
			c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Role: "sysadm_r"}
		}),
		"its AppArmor": first(func(c *corev1.Container) {
			c.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}),
		"no security context": first(func(c *corev1.Container) { c.SecurityContext = nil }),
		"a device":            first(func(c *corev1.Container) { c.VolumeDevices = make([]corev1.VolumeDevice, 1) }),
		"secrets":             first(func(c *corev1.Container) { c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}} }),
		"a key of a secret": first(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}
		}),
		"a host port": first(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{HostPort: 1}} }),
		"a hook":      first(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{} }),

		"runs another image":       func(a *answer) { a.pod.Status.ContainerStatuses[0].ImageID = other },
		"runs an unknown image":    func(a *answer) { a.pod.Status.ContainerStatuses[0].ImageID = "" },
		"agent runs another":       func(a *answer) { a.pod.Status.ContainerStatuses[1].ImageID = image },
		"no status":                func(a *answer) { a.pod.Status.ContainerStatuses = a.pod.Status.ContainerStatuses[:1] },
		"started again":            func(a *answer) { a.pod.Status.ContainerStatuses[0].RestartCount = 1 },
		"an init status of others": func(a *answer) { a.pod.Status.InitContainerStatuses[0].ImageID = other },

		"a folder of the node":  volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		"a secret volume":       volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}),
		"a projected token":     volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}),
		"a volume of an image":  volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}),
		"another driver":        volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io", ReadOnly: &yes}}),
		"a writable identity":   volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: workloadAPIDriver}}),
		"a disk":                volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}),
		"a volume of no kind":   volume(corev1.VolumeSource{}),
		"the agent's identity":  func(a *answer) { a.pod.Spec.Containers[1].VolumeMounts = a.pod.Spec.Containers[0].VolumeMounts },
		"the runner's identity": func(a *answer) { a.pod.Spec.InitContainers[0].VolumeMounts = a.pod.Spec.Containers[0].VolumeMounts },
	} {
		a := hostedAnswer()
		change(&a)
		if err := profile.verify(a); !errors.Is(err, errProfile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pod may have the disks that were made with its sandbox, and no disk of anybody else.
func TestDisks(t *testing.T) {
	profile := hostedProfile(t)
	profile.PersistentVolumes = true
	disk := func(volume, claim string) func(*answer) {
		return func(a *answer) {
			a.pod.Spec.Volumes = append(a.pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}})
		}
	}
	for name, row := range map[string]struct {
		change func(*answer)
		ok     bool
	}{
		"no disk":                     {func(*answer) {}, true},
		"its own":                     {disk("workspace", "workspace-pool-1"), true},
		"one that others share":       {disk("workspace", "shared"), false},
		"another sandbox's":           {disk("workspace", "workspace-pool-2"), false},
		"its own under another name":  {disk("more", "workspace-pool-1"), false},
		"one that nobody made for it": {disk("more", "more-pool-1"), false},
		"no claim's":                  {disk("workspace", ""), false},
		"its own, and a shared one":   {func(a *answer) { disk("workspace", "workspace-pool-1")(a); disk("more", "shared")(a) }, false},
	} {
		a := hostedAnswer()
		a.sandbox.Name = "pool-1"
		a.sandbox.Spec.VolumeClaimTemplates = []agents.PersistentVolumeClaimTemplate{{EmbeddedObjectMetadata: agents.EmbeddedObjectMetadata{Name: "workspace"}}}
		row.change(&a)
		if err := profile.verify(a); (err == nil) != row.ok || err != nil && !errors.Is(err, errProfile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without a signature of this digest by this key nothing is used, whatever else fits.
func TestSignaturesOfAProfile(t *testing.T) {
	another := signaturetest.NewSigner(t)
	for name, change := range map[string]func(*Profile){
		"unsigned":       func(p *Profile) { p.signature = nil },
		"agent unsigned": func(p *Profile) { p.agentSignature = nil },
		"another's":      func(p *Profile) { p.signature = p.agentSignature },
		"the other's":    func(p *Profile) { p.agentSignature = p.signature },
		"garbage":        func(p *Profile) { p.signature = signature.New(another.Key, []byte("{}")) },
		"another key": func(p *Profile) {
			p.signature = signature.New(signaturetest.NewSigner(t).Key, another.Sign(t, digestOf(image)))
		},
	} {
		p := hostedProfile(t)
		change(&p)
		if err := p.verify(hostedAnswer()); !errors.Is(err, errProfile) || !strings.Contains(err.Error(), "not signed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
