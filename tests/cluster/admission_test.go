//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"cofferdam.dev/tests/cluster/internal/kube"
)

// badPods are one for each rule: the change that turns a pod of a template into one that may not be, and what the
// refusal says.
var badPods = map[string]struct {
	change func(*corev1.Pod)
	says   string
}{
	"image by tag":            {func(p *corev1.Pod) { worker(p).Image = "registry.invalid/cofferdam/worker:latest" }, "not pinned"},
	"image of another digest": {func(p *corev1.Pod) { worker(p).Image = otherImage }, "not pinned"},
	"init container of another digest": {func(p *corev1.Pod) {
		c := *worker(p).DeepCopy()
		c.Name, c.Image, c.VolumeMounts, c.StartupProbe, c.ReadinessProbe, c.Ports = "init", otherImage, nil, nil, nil, nil
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}, "not pinned"},
	"image volume": {func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: otherImage}}})
	}, "image"},
	"restart": {func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }, "restartPolicy"},
	"container that comes again": {func(p *corev1.Pod) {
		worker(p).RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}, "no container is started again"},
	"container that comes again by its exit code": {func(p *corev1.Pod) {
		worker(p).RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		worker(p).RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}},
		}}
	}, "no container is started again"},
	"init container that stays": {func(p *corev1.Pod) {
		c := *worker(p).DeepCopy()
		c.Name, c.VolumeMounts, c.StartupProbe, c.ReadinessProbe, c.Ports = "init", nil, nil, nil, nil
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}, "no container is started again"},
	"host network":     {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "hostNetwork"},
	"host processes":   {func(p *corev1.Pod) { p.Spec.HostPID = true }, "hostPID"},
	"host IPC":         {func(p *corev1.Pod) { p.Spec.HostIPC = true }, "hostIPC"},
	"shared processes": {func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = new(true) }, "shareProcessNamespace"},
	"host port":        {func(p *corev1.Pod) { worker(p).Ports[0].HostPort = 8443 }, "port of the host"},
	"host path": {func(p *corev1.Pod) {
		addVolume(p, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
	}, "no hostPath"},
	"secret": {func(p *corev1.Pod) {
		addVolume(p, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})
	}, "secret"},
	"other driver":           {func(p *corev1.Pod) { addVolume(p, corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "other"}}) }, "csi.spiffe.io"},
	"projected token":        {func(p *corev1.Pod) { addVolume(p, token()) }, "projected"},
	"disk where none may be": {func(p *corev1.Pod) { addVolume(p, disk()) }, "a claim"},
	"other account":          {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" }, "service account"},
	"mounted token":          {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = new(true) }, "service account"},
	"runtime class":          {func(p *corev1.Pod) { p.Spec.RuntimeClassName = nil }, "RuntimeClass none is not allowed"},
	"cluster DNS":            {func(p *corev1.Pod) { p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSClusterFirst, nil }, "resolver"},
	"a resolver more":        {func(p *corev1.Pod) { p.Spec.DNSConfig.Nameservers = append(p.Spec.DNSConfig.Nameservers, "192.0.2.53") }, "resolver"},
	"host alias": {func(p *corev1.Pod) {
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"capability"}}}
	}, "hostAliases"},
	"service links":          {func(p *corev1.Pod) { p.Spec.EnableServiceLinks = new(true) }, "enableServiceLinks"},
	"identity for the agent": {func(p *corev1.Pod) { agentWith(p, "identity") }, "Workload API"},
	"secret in environment": {func(p *corev1.Pod) {
		worker(p).Env = append(worker(p).Env, corev1.EnvVar{Name: "S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "k"}}})
	}, "environment"},
	"environment of a secret": {func(p *corev1.Pod) {
		worker(p).EnvFrom = append(worker(p).EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}})
	}, "environment"},
	"no seccomp": {func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile = nil }, "seccompProfile"},
	"seccomp off for one": {func(p *corev1.Pod) {
		worker(p).SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}, "seccompProfile"},
	"root":         {func(p *corev1.Pod) { worker(p).SecurityContext.RunAsUser = new(int64(0)) }, "not root"},
	"perhaps root": {func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsNonRoot = nil }, "not root"},
	"escalation":   {func(p *corev1.Pod) { worker(p).SecurityContext.AllowPrivilegeEscalation = nil }, "privileges"},
	"privileged": {func(p *corev1.Pod) {
		sc := worker(p).SecurityContext
		sc.Privileged, sc.AllowPrivilegeEscalation = new(true), nil
	}, "privileges"},
	"writable root": {func(p *corev1.Pod) { worker(p).SecurityContext.ReadOnlyRootFilesystem = new(false) }, "read-only root"},
	"capabilities":  {func(p *corev1.Pod) { worker(p).SecurityContext.Capabilities.Drop = nil }, "capabilities"},
	"one capability": {func(p *corev1.Pod) {
		worker(p).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
	}, "capabilities"},
	"no memory limit": {func(p *corev1.Pod) {
		delete(worker(p).Resources.Limits, corev1.ResourceMemory)
	}, "limits"},
	"no disk limit": {func(p *corev1.Pod) {
		delete(worker(p).Resources.Limits, corev1.ResourceEphemeralStorage)
	}, "limits"},
}

const otherImage = "registry.invalid/cofferdam/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111"

func worker(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }

func addVolume(p *corev1.Pod, source corev1.VolumeSource) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
}

func token() corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}
}

func disk() corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}
}

// agentWith adds a container beside the worker that mounts what is the worker's.
func agentWith(p *corev1.Pod, volume string) {
	c := *worker(p).DeepCopy()
	c.Name, c.StartupProbe, c.ReadinessProbe, c.Ports = "another", nil, nil, nil
	c.VolumeMounts = []corev1.VolumeMount{{Name: volume, MountPath: "/v"}}
	p.Spec.Containers = append(p.Spec.Containers, c)
}

// create asks for a pod without having it made: admission judges it all the same.
func (in *installation) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := in.Client.CoreV1().Pods(in.sandboxes).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// Pod Security would refuse many of these too: it is off here (installation.idle), so that each refusal is of our own rule.
func TestAdmissionRefusesEachBadPod(t *testing.T) {
	in := install(t, "production", "none")
	// A policy takes a moment until it is in force.
	kube.Eventually(t, "the rules", func(ctx context.Context) error {
		for _, c := range badPods {
			bad := in.pod(t, "native") //nolint:contextcheck // a template is read for as long as the test runs
			c.change(bad)
			if in.create(ctx, bad) == nil {
				return errors.New("a bad pod is taken")
			}
		}
		if err := in.enter(ctx, http.MethodGet, in.sandboxes, entries()[0]); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a pod that is not there is looked for: %w", err)
		}
		return in.create(ctx, in.pod(t, "native")) //nolint:contextcheck // a template is read for as long as the test runs
	})
	for _, template := range []string{"native", "acp", "stdio"} {
		if err := in.create(t.Context(), in.pod(t, template)); err != nil {
			t.Errorf("pod of the template %s: %v", template, err)
		}
	}
	for name, c := range badPods {
		t.Run(name, func(t *testing.T) {
			bad := in.pod(t, "native")
			c.change(bad)
			err := in.create(t.Context(), bad)
			if err == nil || !strings.Contains(err.Error(), in.prefix) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("want a refusal of %s-… that says %q: %v", in.prefix, c.says, err)
			}
		})
	}
	t.Run("a running pod changed and entered", in.changed)
	t.Run("ways in", in.waysIn)
	t.Run("entered by the API server", in.entered)
	t.Run("without its parameters", in.withoutParameters)
}

// changed has a pod that admission took, and tries to make another one of it.
func (in *installation) changed(t *testing.T) {
	pods := in.Client.CoreV1().Pods(in.sandboxes)
	good := in.pod(t, "native")
	good.Spec.NodeSelector = map[string]string{"cofferdam.dev/nowhere": ""} // it need not run
	pod, err := pods.Create(t.Context(), good, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.ResourceVersion = "" // the scheduler has written to it meanwhile
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "in", Image: worker(good).Image}}}
	_, err = pods.UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "ephemeral container") {
		t.Errorf("entered by an ephemeral container: %v", err)
	}
	pod.Spec.EphemeralContainers[0].Image = otherImage
	_, err = pods.UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), in.prefix) {
		t.Errorf("entered by another image: %v", err)
	}
	pod.Spec.EphemeralContainers = nil
	worker(pod).Image = otherImage
	_, err = pods.Update(t.Context(), pod, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "not pinned") {
		t.Errorf("given another image: %v", err)
	}
}

func (in *installation) waysIn(t *testing.T) {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for kind, refused := range map[corev1.ServiceType]bool{
		corev1.ServiceTypeClusterIP: false, corev1.ServiceTypeNodePort: true, corev1.ServiceTypeLoadBalancer: true, corev1.ServiceTypeExternalName: true,
	} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 8443}}}}
		if kind == corev1.ServiceTypeExternalName {
			s.Spec.ExternalName, s.Spec.Ports = "example.org", nil
		}
		_, err := in.Client.CoreV1().Services(in.sandboxes).Create(t.Context(), s, dry)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "type ClusterIP") {
			t.Errorf("Service of type %s: %v", kind, err)
		}
	}
	external := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 8443}}}}
	if _, err := in.Client.CoreV1().Services(in.sandboxes).Create(t.Context(), external, dry); err == nil || !strings.Contains(err.Error(), in.prefix) {
		t.Errorf("Service with an external address: %v", err)
	}
	ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "i"}, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
		Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 8443}},
	}}}
	if _, err := in.Client.NetworkingV1().Ingresses(in.sandboxes).Create(t.Context(), ingress, dry); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("Ingress: %v", err)
	}
	if _, err := in.Client.NetworkingV1().Ingresses("default").Create(t.Context(), ingress, dry); err != nil {
		t.Errorf("Ingress of somebody else: %v", err)
	}
	if err := in.claim(t, "fast", corev1.ReadWriteOncePod); err == nil || !strings.Contains(err.Error(), "StorageClass fast") {
		t.Errorf("disk where none may be: %v", err)
	}
}

// entry is a way into a pod that the API server has.
type entry struct {
	resource, subresource string
	parameters            map[string]string
}

func entries() []entry {
	return []entry{
		{"pods", "exec", map[string]string{"command": "true", "stdout": "true"}},
		{"pods", "attach", map[string]string{"stdout": "true"}},
		{"pods", "portforward", map[string]string{"ports": "8443"}},
		{"pods", "proxy", nil},
		{"services", "proxy", nil},
	}
}

// enter asks for one that is not there: admission comes before it is looked for.
func (in *installation) enter(ctx context.Context, verb, namespace string, way entry) error {
	request := in.Client.CoreV1().RESTClient().Verb(verb).Namespace(namespace).Resource(way.resource).Name("nobody").SubResource(way.subresource)
	for name, value := range way.parameters {
		request = request.Param(name, value)
	}
	return request.Do(ctx).Error()
}

func (in *installation) entered(t *testing.T) {
	for _, way := range entries() {
		for _, verb := range []string{http.MethodGet, http.MethodPost} {
			if err := in.enter(t.Context(), verb, in.sandboxes, way); err == nil || !strings.Contains(err.Error(), "nobody enters a sandbox") {
				t.Errorf("%s %s/%s: %v", verb, way.resource, way.subresource, err)
			}
			if err := in.enter(t.Context(), verb, "default", way); !apierrors.IsNotFound(err) {
				t.Errorf("%s %s/%s of somebody else: want that it is not there: %v", verb, way.resource, way.subresource, err)
			}
		}
	}
}

func (in *installation) claim(t *testing.T, class string, mode corev1.PersistentVolumeAccessMode) error {
	_, err := in.Client.CoreV1().PersistentVolumeClaims(in.sandboxes).Create(t.Context(), claimOf(class, mode), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func claimOf(class string, mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{mode}, StorageClassName: &class,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

// withoutParameters: who deletes the ConfigMap of what may run has stopped everything, and opened nothing.
func (in *installation) withoutParameters(t *testing.T) {
	if err := in.Client.CoreV1().ConfigMaps(in.system).Delete(t.Context(), "sandbox-admission", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kube.Eventually(t, "the refusal of a good pod", func(ctx context.Context) error {
		if in.create(ctx, in.pod(t, "native")) == nil { //nolint:contextcheck // a template is read for as long as the test runs
			return errors.New("it is taken")
		}
		return nil
	})
}

// The profile with a disk, on a class that is allowed.
func TestAdmissionOfDisks(t *testing.T) {
	in := install(t, "production-kata", "encrypted", "pvc", "runtime-kata")
	withDisk := in.pod(t, "native-disk")
	// The sandbox controller adds it, from the template's volumeClaimTemplates.
	withDisk.Spec.Volumes = append(withDisk.Spec.Volumes, corev1.Volume{Name: "workspace", VolumeSource: disk()})
	bad := []struct {
		class string
		mode  corev1.PersistentVolumeAccessMode
		says  string
	}{
		{"plain", corev1.ReadWriteOncePod, "StorageClass plain"},
		{"", corev1.ReadWriteOncePod, "not one of the encrypted"},
		{"none", corev1.ReadWriteOncePod, "StorageClass none"},
		{"encrypted", corev1.ReadWriteOnce, "one pod"},
		{"encrypted", corev1.ReadWriteMany, "one pod"},
	}
	// A policy takes a moment until it is in force.
	kube.Eventually(t, "the rules", func(ctx context.Context) error {
		for _, c := range bad {
			if in.claim(t, c.class, c.mode) == nil { //nolint:contextcheck // it bounds itself by the test
				return errors.New("a bad claim is taken")
			}
		}
		return errors.Join(in.create(ctx, withDisk), in.claim(t, "encrypted", corev1.ReadWriteOncePod)) //nolint:contextcheck // it bounds itself by the test
	})
	for _, c := range bad {
		if err := in.claim(t, c.class, c.mode); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("class %q, %s: %v", c.class, c.mode, err)
		}
	}
	t.Run("a class that is allowed no more", in.retired)
}

// retired: a disk of a class that was taken out of the list goes when its sandbox does. The cluster takes its finalizer from it
// by an update, which nothing may refuse; and no update makes another disk of it.
func (in *installation) retired(t *testing.T) {
	claims := in.Client.CoreV1().PersistentVolumeClaims(in.sandboxes)
	claim, err := claims.Create(t.Context(), claimOf("encrypted", corev1.ReadWriteOncePod), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(claim.Finalizers) == 0 {
		t.Fatal("the claim has no finalizer: its removal would show nothing")
	}
	none := []byte(`{"data":{"storage-classes":"none"}}`)
	if _, err := in.Client.CoreV1().ConfigMaps(in.system).Patch(t.Context(), "sandbox-admission", types.MergePatchType, none, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kube.Eventually(t, "the class to be refused", func(context.Context) error {
		if in.claim(t, "encrypted", corev1.ReadWriteOncePod) == nil { //nolint:contextcheck // it bounds itself by the test
			return errors.New("it is taken")
		}
		return nil
	})
	for name, change := range map[string]string{
		"class": `{"spec":{"storageClassName":"plain"}}`, "pods": `{"spec":{"accessModes":["ReadWriteMany"]}}`, "mode": `{"spec":{"volumeMode":"Block"}}`,
		"source": `{"spec":{"dataSource":{"kind":"PersistentVolumeClaim","name":"another"}}}`,
	} {
		_, err := claims.Patch(t.Context(), claim.Name, types.MergePatchType, []byte(change), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) {
			t.Errorf("a claim given another %s: %v", name, err)
		}
	}
	if err := claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kube.Eventually(t, "the end of the claim", func(ctx context.Context) error {
		left, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is there, with the finalizers %v", left.Finalizers))
	})
}
