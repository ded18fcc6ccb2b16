package invariant

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"cofferdam.dev/tools/manifests/internal/render"
)

const kubernetes = "../../../../deploy/kubernetes"

// overlay is an installation of one's own on an overlay, with more components and settings.
func overlay(t *testing.T, on string, components []string, settings ...string) []byte {
	t.Helper()
	var list []string
	for _, c := range append(components, "components/values") {
		list = append(list, "BASE/"+c)
	}
	return rendered(t, map[string]string{"kustomization.yaml": fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [BASE/%s]
components: [%s]
generatorOptions: {disableNameSuffixHash: true}
configMapGenerator:
- {name: cofferdam-settings, namespace: cofferdam-system, behavior: merge, literals: [%s]}
`, on, strings.Join(list, ", "), strings.Join(settings, ", "))})
}

// rendered are the objects of a folder with these files, in which BASE stands for deploy/kubernetes.
func rendered(t *testing.T, files map[string]string) []byte {
	t.Helper()
	folder := t.TempDir()
	base, err := filepath.Abs(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(folder, base); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(strings.ReplaceAll(text, "BASE", base)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := render.Kustomize(folder)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// production is rendered once: that takes seconds.
var production = sync.OnceValues(func() ([]byte, error) { return render.Kustomize(filepath.Join(kubernetes, "overlays/production")) })

func decoded(t *testing.T, text []byte) *Installation {
	t.Helper()
	in, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Every overlay, and every component that one may add.
func TestOverlaysHold(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(*testing.T) []byte{
		"production": func(t *testing.T) []byte {
			t.Helper()
			text, err := production()
			if err != nil {
				t.Fatal(err)
			}
			return text
		},
		"everything on kata": func(t *testing.T) []byte {
			t.Helper()
			return overlay(t, "overlays/production-kata", []string{
				"components/pvc", "components/runtime-kata", "components/embeddings", "components/monitoring", "components/artifacts",
				"components/public-ingress", "components/sandbox-telemetry",
			}, "STORAGE_CLASSES=encrypted")
		},
		"development": func(t *testing.T) []byte {
			t.Helper()
			return overlay(t, "overlays/development", []string{
				"components/hosted", "overlays/development/nodeidentity", "overlays/development/values",
			})
		},
		"development without a DNS": func(t *testing.T) []byte {
			t.Helper()
			return overlay(t, "overlays/development", []string{"overlays/development/dns", "overlays/development/values"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := decoded(t, make(t))
			if len(in.workloads()) < 8 || len(in.Policies) < 10 {
				t.Fatalf("%d workloads and %d policies: that is not all", len(in.workloads()), len(in.Policies))
			}
			for _, wrong := range Check(in) {
				t.Error(wrong)
			}
		})
	}
}

// What an installation decides comes to where it has to stand, through an overlay on top of production as well: each
// setting changes something besides the ConfigMap that holds it, or an argument names it.
func TestEachSettingTakesEffect(t *testing.T) {
	t.Parallel()
	text, err := production()
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{}
	for key, value := range decoded(t, text).data(system, "cofferdam-settings") {
		switch {
		case strings.HasPrefix(key, "IMAGE_"):
			changed[key] = "example.org/" + strings.ToLower(key) + "@sha256:" + strings.Repeat("1", 64)
		case strings.HasSuffix(key, "_PORT"):
			changed[key] = "1" + value[:2]
		default:
			changed[key] = "changed." + strings.ToLower(key)
		}
	}
	var literals []string
	for key, value := range changed {
		literals = append(literals, key+"="+value)
	}
	out := string(overlay(t, "overlays/production", []string{"components/pvc", "components/embeddings", "components/sandbox-telemetry", "components/runtime-gvisor"}, literals...))
	for key, value := range changed {
		// Once in the settings themselves.
		if strings.Count(out, value) < 2 && !strings.Contains(out, "$("+key+")") {
			t.Errorf("%s is nowhere but in the settings", key)
		}
	}
	for _, placeholder := range []string{"registry.invalid", "192.0.2.", "cofferdam.invalid", "encrypted.invalid"} {
		if i := strings.Index(out, placeholder); i >= 0 {
			t.Errorf("%s is left where a setting was given:\n%s", placeholder, out[max(0, i-600):i+80])
		}
	}
}

// What is not of the type of its object, or has no place in an installation, is not read.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	text, err := production()
	if err != nil {
		t.Fatal(err)
	}
	const account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: more, namespace: cofferdam-system}\n"
	if _, err := Decode(append(slices.Clone(text), ("---\n" + account)...)); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string][2]string{
		"a field that a Deployment has not": {strings.Replace(string(text), "  replicas: 2\n", "  replicas: 2\n  replica: 3\n", 1), "replica"},
		"a field twice":                     {strings.Replace(string(text), "  replicas: 2\n", "  replicas: 2\n  replicas: 3\n", 1), "already set"},
		"a field of a template":             {strings.Replace(string(text), "  networkPolicyManagement:", "  networkPolicyManagment:", 1), "networkPolicyManagment"},
		"a field of a ClusterSPIFFEID":      {strings.Replace(string(text), "  spiffeIDTemplate:", "  spiffeIdTemplate:", 1), "spiffeIdTemplate"},
		"a limit that is no quantity":       {strings.Replace(string(text), "memory: 512Mi", "memory: much", 1), "quantit"},
		"a type":                            {strings.Replace(string(text), "containerPort: 8443", "containerPort: rpc", 1), "containerPort"},
		"an object twice":                   {account + "---\n" + account, "twice"},
		"an Ingress":                        {"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: in, namespace: cofferdam-system}\n", "no Ingress"},
		"a Secret":                          {"apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: cofferdam-system}\n", "no Secret"},
		"a route":                           {"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: in}\n", "no kind"},
		"a version that is gone":            {"apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: in}\n", "no kind"},
	} {
		if _, err := Decode([]byte(row[0])); err == nil || !strings.Contains(err.Error(), row[1]) {
			t.Errorf("%s: want an error about %q: %v", name, row[1], err)
		}
	}
}

func get[T metav1.Object](list []T, name string) T {
	i := slices.IndexFunc(list, func(o T) bool { return full(o) == name })
	if i < 0 {
		panic("no " + name)
	}
	return list[i]
}

func deployment(in *Installation, name string) *appsv1.Deployment {
	return get(in.Deployments, system+"/"+name)
}

func pod(in *Installation, name string) *corev1.PodSpec {
	return &deployment(in, name).Spec.Template.Spec
}

func worker(in *Installation, template string) *corev1.PodSpec {
	return &get(in.Templates, sandboxes+"/"+template).Spec.PodTemplate.Spec
}

func policy(in *Installation, name string) *networkingv1.NetworkPolicySpec {
	return &get(in.Policies, name).Spec
}

func mount(s *corev1.PodSpec, container int, v corev1.Volume) {
	v.Name = "more"
	s.Volumes = append(s.Volumes, v)
	s.Containers[container].VolumeMounts = append(s.Containers[container].VolumeMounts, corev1.VolumeMount{Name: "more", MountPath: "/more"})
}

func spiffe() corev1.Volume {
	return corev1.Volume{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: workloadAPI, ReadOnly: new(true)}}}
}

func secret(name string) corev1.Volume {
	return corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: new(int32(0o400))}}}
}

type breakage struct {
	change func(*Installation)
	says   string
}

// Each is one change that a person could make to the manifests, and what is said of it.
func breakages() map[string]breakage {
	all := map[string]breakage{}
	for _, some := range []map[string]breakage{brokenPods(), brokenSecrets(), brokenIdentities(), brokenRights(), brokenServices(), brokenPolicies(), brokenSandboxes()} {
		maps.Copy(all, some)
	}
	return all
}

func brokenPods() map[string]breakage {
	on := func(change func(*corev1.PodSpec, *corev1.Container)) func(*Installation) {
		return func(in *Installation) { s := pod(in, "toolbroker"); change(s, &s.Containers[0]) }
	}
	return map[string]breakage{
		"image by tag":            {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "registry.invalid/toolbroker:latest" }), "not pinned"},
		"image by tag and digest": {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = strings.Replace(c.Image, "@", ":1@", 1) }), "not pinned"},
		"no limit":                {on(func(_ *corev1.PodSpec, c *corev1.Container) { delete(c.Resources.Limits, corev1.ResourceMemory) }), "no limit of memory"},
		"no request":              {on(func(_ *corev1.PodSpec, c *corev1.Container) { delete(c.Resources.Requests, corev1.ResourceCPU) }), "requests no cpu"},
		"init without limit":      {func(in *Installation) { worker(in, "acp").InitContainers[0].Resources.Limits = nil }, "container runner has no limit"},
		"host network":            {on(func(s *corev1.PodSpec, _ *corev1.Container) { s.HostNetwork = true }), "namespace of its node"},
		"host path": {on(func(s *corev1.PodSpec, _ *corev1.Container) {
			mount(s, 0, corev1.Volume{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}), "folder of its node"},
		"host port": {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.Ports[0].HostPort = 8443 }), "port of its node"},
		"unbounded": {on(func(s *corev1.PodSpec, _ *corev1.Container) {
			mount(s, 0, corev1.Volume{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}), "sizeLimit"},
		"shared processes":    {func(in *Installation) { worker(in, "stdio").ShareProcessNamespace = new(true) }, "each other's processes"},
		"service links":       {on(func(s *corev1.PodSpec, _ *corev1.Container) { s.EnableServiceLinks = nil }), "enableServiceLinks"},
		"token by default":    {on(func(s *corev1.PodSpec, _ *corev1.Container) { s.AutomountServiceAccountToken = nil }), "automountServiceAccountToken"},
		"root":                {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.RunAsUser = new(int64(0)) }), "as root"},
		"privileged":          {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.Privileged = new(true) }), "gain privileges"},
		"writable root":       {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.ReadOnlyRootFilesystem = nil }), "write to its root"},
		"capability":          {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext.Capabilities.Drop = nil }), "capabilities"},
		"no seccomp":          {on(func(s *corev1.PodSpec, _ *corev1.Container) { s.SecurityContext.SeccompProfile = nil }), "seccomp"},
		"no security context": {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.SecurityContext = nil }), "no security context"},
		"no readiness":        {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.ReadinessProbe = nil }), "no readinessProbe"},
		"no liveness":         {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.LivenessProbe = nil }), "no livenessProbe"},
		"no startup":          {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.StartupProbe = nil }), "no startupProbe"},
		"probe of no port": {on(func(_ *corev1.PodSpec, c *corev1.Container) {
			c.ReadinessProbe.HTTPGet.Port = intstr.FromString("adm")
		}), "port adm, which it has not"},
		"worker that is started again": {func(in *Installation) {
			c := &worker(in, "native").Containers[0]
			c.LivenessProbe = c.ReadinessProbe
		}, "has a livenessProbe"},
		"probed agent": {func(in *Installation) {
			s := worker(in, "acp")
			s.Containers[1].ReadinessProbe = s.Containers[0].ReadinessProbe
		}, "is probed"},
		"variable without value":   {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.Args = append(c.Args, "--x=$(OPENFGA_UR)") }), "$(OPENFGA_UR)"},
		"variables of nothing":     {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.EnvFrom[0].ConfigMapRef.Name = "setings" }), "setings, which is not there"},
		"volume that is not there": {on(func(s *corev1.PodSpec, _ *corev1.Container) { s.Volumes = s.Volumes[1:] }), "mounts identity, which is not there"},
		"volume of no use":         {on(func(_ *corev1.PodSpec, c *corev1.Container) { c.VolumeMounts = c.VolumeMounts[:1] }), "mounted nowhere"},
		"file that is not there":   {func(in *Installation) { get(in.ConfigMaps, system+"/catalogue").Name = "tools" }, "ConfigMap catalogue, which is not there"},
		"root in production": {func(in *Installation) {
			in.DaemonSets = append(in.DaemonSets, &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Name: "nodeidentity", Namespace: "cofferdam-identity"},
				Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "nodeidentity", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}},
				}}},
			})
		}, "nodeidentity: container nodeidentity"},
	}
}

func brokenSecrets() map[string]breakage {
	return map[string]breakage{
		"somebody else's secret": {func(in *Installation) { mount(pod(in, "modelproxy"), 0, secret("capability-keys")) }, "capability-keys, which is not its own"},
		"secret of a sandbox":    {func(in *Installation) { mount(worker(in, "native"), 0, secret("model-keys")) }, "which is not its own"},
		"unknown secret":         {func(in *Installation) { mount(pod(in, "modelproxy"), 0, secret("more")) }, "which is not its own"},
		"secret that is missing": {func(in *Installation) {
			s := pod(in, "capability")
			s.Volumes = slices.DeleteFunc(s.Volumes, func(v corev1.Volume) bool { return v.Name == "capability-keys" })
		}, "does not mount the secret capability-keys"},
		"secret for all": {func(in *Installation) {
			for i := range pod(in, "capability").Volumes {
				if v := pod(in, "capability").Volumes[i].Secret; v != nil {
					v.DefaultMode = new(int32(0o444))
				}
			}
		}, "read by others"},
		"secret in the environment": {func(in *Installation) {
			c := &pod(in, "modelproxy").Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}})
		}, "secret in its environment"},
		"environment of a secret": {func(in *Installation) {
			c := &pod(in, "modelproxy").Containers[0]
			c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{}})
		}, "environment of a secret"},
		"projected secret": {func(in *Installation) {
			mount(pod(in, "modelproxy"), 0, corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{}}},
			}}})
		}, "among other things"},
		"token": {func(in *Installation) {
			mount(pod(in, "modelproxy"), 0, corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600))}}},
			}}})
		}, "has a token"},
		"token for long": {func(in *Installation) {
			for _, v := range pod(in, "resolver").Volumes {
				if v.Projected != nil {
					v.Projected.Sources[0].ServiceAccountToken.ExpirationSeconds = new(int64(86400))
				}
			}
		}, "longer than an hour"},
		"account with tokens":       {func(in *Installation) { get(in.Accounts, sandboxes+"/worker").AutomountServiceAccountToken = nil }, "automountServiceAccountToken"},
		"account that is not there": {func(in *Installation) { pod(in, "modelproxy").ServiceAccountName = "model" }, "model is not there"},
	}
}

func brokenIdentities() map[string]breakage {
	id := func(in *Installation, name string) *ClusterSPIFFEIDSpec { return &get(in.Identities, name).Spec }
	return map[string]breakage{
		"identity of the resolver": {func(in *Installation) { mount(pod(in, "resolver"), 0, spiffe()) }, "in services and in sandboxes"},
		"identity of the agent": {func(in *Installation) {
			c := &worker(in, "acp").Containers[1]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "identity", MountPath: workloadSocket, ReadOnly: true})
		}, "container agent: the Workload API"},
		"identity of the init container": {func(in *Installation) {
			c := &worker(in, "acp").InitContainers[0]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "identity", MountPath: workloadSocket, ReadOnly: true})
		}, "container runner: the Workload API"},
		"no identity": {func(in *Installation) {
			s := pod(in, "filebroker")
			s.Volumes = slices.DeleteFunc(s.Volumes, func(v corev1.Volume) bool { return v.CSI != nil })
		}, "in services and in sandboxes"},
		"another driver": {func(in *Installation) {
			for _, v := range pod(in, "filebroker").Volumes {
				if v.CSI != nil {
					v.CSI.Driver = "other"
				}
			}
		}, "driver other"},
		"identity by name": {func(in *Installation) {
			id(in, "cofferdam-sandboxes").SPIFFEIDTemplate = "spiffe://{{ .TrustDomain }}/sandbox/{{ .PodMeta.Name }}"
		}, "its peers expect"},
		"identity by namespace": {func(in *Installation) {
			id(in, "cofferdam-services").SPIFFEIDTemplate = "spiffe://{{ .TrustDomain }}/ns/{{ .PodMeta.Namespace }}"
		}, "which nobody gets"},
		"a field that pods have not": {func(in *Installation) { id(in, "cofferdam-services").SPIFFEIDTemplate = "{{ .PodSpec.Account }}" }, "Account"},
		"identities of nobody": {func(in *Installation) {
			id(in, "cofferdam-sandboxes").PodSelector.MatchLabels["app.kubernetes.io/name"] = "sandbox"
		}, "0 ClusterSPIFFEIDs"},
		"identity of two": {func(in *Installation) {
			id(in, "cofferdam-services").NamespaceSelector.MatchLabels = nil
			id(in, "cofferdam-services").PodSelector = &metav1.LabelSelector{}
		}, "2 ClusterSPIFFEIDs"},
		"identity for the whole pod": {func(in *Installation) { id(in, "cofferdam-sandboxes").WorkloadSelectorTemplates = nil }, "does not name the container"},
		"rules for one more": {func(in *Installation) {
			in.ConfigMaps = append(in.ConfigMaps, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "cofferdam-identity", Name: "nodeidentity"},
				Data:       map[string]string{"rules.json": `{"rules": [{"namespace": "cofferdam-system", "service_accounts": ["resolver"], "identity": "service"}]}`},
			})
		}, "gives identities to [cofferdam-system/resolver as a service]"},
		"admin of SPIRE":      {func(in *Installation) { id(in, "cofferdam-services").Admin = true }, "rights on SPIRE"},
		"identity of another": {func(in *Installation) { pod(in, "filebroker").ServiceAccountName = "statefacade" }, "its peers expect"},
		"peer that there is not": {func(in *Installation) {
			c := &pod(in, "filebroker").Containers[0]
			c.Args = append(c.Args, "--x=spiffe://$(TRUST_DOMAIN)/svc/other")
		}, "svc/other, which nobody gets"},
	}
}

func brokenRights() map[string]breakage {
	rule := func(in *Installation) *rbacv1.PolicyRule { return &get(in.Roles, sandboxes+"/controlplane").Rules[2] }
	return map[string]breakage{
		"enters pods":        {func(in *Installation) { rule(in).Resources = append(rule(in).Resources, "pods/exec") }, "/pods/exec get is more"},
		"everything":         {func(in *Installation) { rule(in).Verbs = []string{"*"} }, "/pods * is more"},
		"does not see pods":  {func(in *Installation) { rule(in).Verbs = []string{"get", "list"} }, "/pods watch is missing"},
		"in every namespace": {func(in *Installation) { get(in.BoundClusterly, "cofferdam-resolver").Subjects[0].Name = "controlplane" }, "controlplane in every namespace"},
		"everybody": {func(in *Installation) {
			get(in.RoleBindings, sandboxes+"/controlplane").Subjects[0] = rbacv1.Subject{Kind: "Group", Name: "system:authenticated"}
		}, "no account of ours"},
		"another role": {func(in *Installation) { get(in.RoleBindings, sandboxes+"/controlplane").RoleRef.Name = "admin" }, "Role admin is not there"},
		"aggregated": {func(in *Installation) {
			get(in.ClusterRoles, "cofferdam-resolver").AggregationRule = &rbacv1.AggregationRule{}
		}, "takes in others"},
		"by URL": {func(in *Installation) { rule(in).NonResourceURLs = []string{"/metrics"} }, "by URL"},
		"of development": {func(in *Installation) {
			get(in.ClusterRoles, "cofferdam-resolver").Rules[0].Resources = []string{"services", "namespaces", "endpoints"}
		}, "endpoints list is more"},
	}
}

func brokenServices() map[string]breakage {
	s := func(in *Installation, name string) *corev1.ServiceSpec {
		return &get(in.Services, system+"/"+name).Spec
	}
	return map[string]breakage{
		"NodePort":               {func(in *Installation) { s(in, "controlplane").Type = corev1.ServiceTypeNodePort }, "not ClusterIP"},
		"LoadBalancer":           {func(in *Installation) { s(in, "controlplane").Type = corev1.ServiceTypeLoadBalancer }, "not ClusterIP"},
		"external address":       {func(in *Installation) { s(in, "controlplane").ExternalIPs = []string{"192.0.2.1"} }, "outside of the cluster"},
		"service of sandboxes":   {func(in *Installation) { get(in.Services, system+"/filebroker").Namespace = sandboxes }, "leads to sandboxes"},
		"nothing behind":         {func(in *Installation) { s(in, "filebroker").Selector["app.kubernetes.io/name"] = "files" }, "selects no pod"},
		"port of nothing":        {func(in *Installation) { s(in, "filebroker").Ports[0].TargetPort = intstr.FromString("grpc") }, "port grpc"},
		"no selector":            {func(in *Installation) { s(in, "filebroker").Selector = nil }, "selects no pod"},
		"port that callers know": {func(in *Installation) { s(in, "filebroker").Ports[0].Port = 443 }, "is told of port 8443"},
		"name that callers know": {func(in *Installation) { get(in.Services, system+"/filebroker").Name = "files" }, "filebroker, which is not there"},
		"not resolvable": {func(in *Installation) {
			delete(get(in.Services, system+"/capability").Labels, "cofferdam.dev/resolvable")
		}, "the resolver does not know"},
		"no budget":          {func(in *Installation) { in.Disruptions = in.Disruptions[1:] }, "PodDisruptionBudgets []"},
		"budget of nothing":  {func(in *Installation) { in.Disruptions[0].Spec.Selector.MatchLabels["app.kubernetes.io/name"] = "x" }, "not of one Deployment"},
		"budget of nobody":   {func(in *Installation) { in.Disruptions[0].Spec.MaxUnavailable = new(intstr.FromInt32(0)) }, "maxUnavailable"},
		"budget of the sick": {func(in *Installation) { in.Disruptions[0].Spec.UnhealthyPodEvictionPolicy = nil }, "hold up the drain"},
		"one replica":        {func(in *Installation) { deployment(in, "controlplane").Spec.Replicas = new(int32(1)) }, "fewer than two"},
		"selector of others": {func(in *Installation) {
			deployment(in, "controlplane").Spec.Selector.MatchLabels["app.kubernetes.io/name"] = "x"
		}, "its own pods"},
	}
}

func brokenPolicies() map[string]breakage {
	port := func(p int32) []networkingv1.NetworkPolicyPort {
		return []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(p))}}
	}
	return map[string]breakage{
		"open by default": {func(in *Installation) {
			get(in.Policies, sandboxes+"/default-deny").Spec.PolicyTypes = in.Policies[0].Spec.PolicyTypes[:1]
		}, "not closed by default"},
		"policy of nothing": {func(in *Installation) {
			policy(in, system+"/filebroker").PodSelector.MatchLabels["app.kubernetes.io/name"] = "files"
		}, "selects no pod"},
		"peer of nothing": {func(in *Installation) {
			policy(in, system+"/filebroker").Ingress[0].From[0].PodSelector.MatchLabels["app.kubernetes.io/name"] = "control"
		}, "a peer that is no pod"},
		"namespace of nothing": {func(in *Installation) {
			policy(in, sandboxes+"/worker").Egress[0].To[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] = "cofferdam"
		}, "a peer that is no pod"},
		"port of nothing in a policy": {func(in *Installation) { policy(in, sandboxes+"/worker").Ingress[0].Ports = port(8444) }, "opens port 8444"},
		"protocol of nothing": {func(in *Installation) {
			policy(in, system+"/resolver").Ingress[0].Ports[0].Port = new(intstr.FromInt32(9090))
		}, "opens port 9090"},
		"egress to no port": {func(in *Installation) { policy(in, system+"/filebroker").Egress[0].Ports = port(443) }, "opens port 443"},
		"every port":        {func(in *Installation) { policy(in, sandboxes+"/worker").Egress[1].Ports = nil }, "opens every port"},
		"a range":           {func(in *Installation) { policy(in, sandboxes+"/worker").Egress[1].Ports[0].EndPort = new(int32(9000)) }, "a range"},
		"everybody in":      {func(in *Installation) { policy(in, sandboxes+"/worker").Ingress[0].From = nil }, "lets everybody in"},
		"everybody out":     {func(in *Installation) { policy(in, sandboxes+"/worker").Egress[1].To = nil }, "lets out to everybody"},
		"every address": {func(in *Installation) {
			policy(in, system+"/external-models").Egress[0].To[0].IPBlock.CIDR = "0.0.0.0/0"
		}, "every address"},
		"every namespace": {func(in *Installation) {
			policy(in, sandboxes+"/worker").Ingress[0].From[0].NamespaceSelector = &metav1.LabelSelector{}
		}, "names no namespace"},
		"a rule of no type": {func(in *Installation) {
			policy(in, system+"/external-models").PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		}, "no rule of its types"},
		"one end alone": {func(in *Installation) {
			policy(in, system+"/filebroker").Ingress[0].From = policy(in, system+"/filebroker").Ingress[0].From[:1]
		}, "one end alone"},
		"nobody let there": {func(in *Installation) {
			policy(in, system+"/toolbroker").Egress[0].To = policy(in, system+"/toolbroker").Egress[0].To[:2]
		}, "no policy lets it there"},
	}
}

func brokenSandboxes() map[string]breakage {
	spec := func(in *Installation) *corev1.PodSpec { return worker(in, "native") }
	params := func(in *Installation) map[string]string { return get(in.ConfigMaps, system+"/sandbox-admission").Data }
	return map[string]breakage{
		"restarts":             {func(in *Installation) { spec(in).RestartPolicy = corev1.RestartPolicyAlways }, "starts containers again"},
		"names of the cluster": {func(in *Installation) { spec(in).DNSPolicy = corev1.DNSClusterFirst }, "does not ask the resolver"},
		"another resolver":     {func(in *Installation) { get(in.Services, system+"/resolver").Spec.ClusterIP = "10.96.0.54" }, "does not ask the resolver"},
		"class of nobody":      {func(in *Installation) { spec(in).RuntimeClassName = new("runc") }, "RuntimeClass runc"},
		"worker of no sandbox": {func(in *Installation) { in.data(system, "cofferdam-settings")["IMAGE_WORKER"] = "x" }, "runs in no sandbox"},
		"image of nobody":      {func(in *Installation) { params(in)["image-worker"] = "x" }, "which admission refuses"},
		"an agent as worker": {func(in *Installation) {
			n := slices.IndexFunc(spec(in).Containers, func(c corev1.Container) bool { return c.Name == workerContainer })
			spec(in).Containers[n].Image = params(in)["image-agent-acp"]
		}, "no worker's image"},
		"agent of nobody": {func(in *Installation) { delete(params(in), "image-agent-acp") }, "container agent runs"},
		"runner of another": {func(in *Installation) {
			worker(in, "acp").InitContainers[0].Image = "registry.invalid/x@sha256:" + strings.Repeat("1", 64)
		}, "container runner runs"},
		"another digest":        {func(in *Installation) { spec(in).Containers[0].Env[0].Value = "sha256:1" }, "another digest than its own"},
		"agent like the worker": {func(in *Installation) { worker(in, "acp").Containers[1].SecurityContext.RunAsUser = new(int64(65532)) }, "the user that its worker is"},
		"managed policy":        {func(in *Installation) { in.Templates[0].Spec.NetworkPolicyManagement = "Managed" }, "opens the internet"},
		"environment of claims": {func(in *Installation) { in.Templates[0].Spec.EnvVarsInjectionPolicy = "Allowed" }, "set its environment"},
		"disks of claims":       {func(in *Installation) { in.Templates[0].Spec.VolumeClaimTemplatesPolicy = "Allowed" }, "add disks"},
		"service of a sandbox":  {func(in *Installation) { in.Templates[0].Spec.Service = new(true) }, "Service for each sandbox"},
		"pool of nothing":       {func(in *Installation) { in.Pools[0].Spec.TemplateRef.Name = "x" }, "template x is not there"},
		"no parameters":         {func(in *Installation) { get(in.ConfigMaps, system+"/sandbox-admission").Name = "x" }, "nothing could be made"},
		"rule not in force": {func(in *Installation) {
			in.AdmissionBounds[0].Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
		}, "is not in force"},
		"rule elsewhere": {func(in *Installation) {
			in.AdmissionBounds[0].Spec.MatchResources.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] = system
		}, "is not in force"},
		"rule left out": {func(in *Installation) { in.Admission = in.Admission[1:] }, "is not there"},
		"a rule of the operator in its place": {func(in *Installation) {
			in.Admission[0].Name = "pods-of-mine"
		}, "is not there"},
		"one container comes again": {func(in *Installation) {
			spec(in).Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}, "container worker is started again"},
		"by an exit code": {func(in *Installation) {
			spec(in).Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}
		}, "container worker is started again"},
		"an init container stays": {func(in *Installation) {
			worker(in, "acp").InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}, "container runner is started again"},
		"no last words": {func(in *Installation) {
			c := &spec(in).Containers[0]
			c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--termination-log=") })
		}, "does not leave the limit"},
		"last words elsewhere": {func(in *Installation) { spec(in).Containers[0].TerminationMessagePath = "/tmp/last" }, "does not leave the limit"},
	}
}

// A check that cannot fail is none: each is seen to, by one broken object.
func TestEachBreakageIsFound(t *testing.T) {
	t.Parallel()
	text, err := production()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range breakages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := decoded(t, text)
			b.change(in)
			wrong := Check(in)
			if !slices.ContainsFunc(wrong, func(s string) bool { return strings.Contains(s, b.says) }) {
				t.Errorf("nothing says %q:\n%s", b.says, strings.Join(wrong, "\n"))
			}
		})
	}
}
