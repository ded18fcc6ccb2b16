package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Namespaces of an installation.
const (
	system    = "cofferdam-system"
	sandboxes = "cofferdam-sandboxes"
)

// development is the ENVIRONMENT that may have what no other may: cofferdam-nodeidentity, which is root on its node.
const development = "development"

// Check names everything that is wrong with an installation, each as "OBJECT: what".
func Check(in *Installation) []string {
	c := &checker{Installation: in, workloads: in.workloads()}
	for _, rule := range []func(*checker){
		pods, probes, references, secrets, tokens, identities, rights, services, disruptions, policies, arrows, variables, admission,
	} {
		rule(c)
	}
	slices.Sort(c.wrong)
	return slices.Compact(c.wrong)
}

type checker struct {
	*Installation

	workloads []*workload
	wrong     []string
}

func (c *checker) that(ok bool, who fmt.Stringer, otherwise string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, who.String()+": "+fmt.Sprintf(otherwise, args...))
	}
}

// object is what something is said about.
type object struct{ kind, name string }

func (o object) String() string { return o.kind + " " + o.name }

func of(kind string, o metav1.Object) object { return object{kind, full(o)} }

// workload is whatever pods are made of.
type workload struct {
	object

	namespace string
	labels    map[string]string
	spec      *corev1.PodSpec
	sandbox   bool
	service   bool // one of ours, with an identity
}

func (in *Installation) workloads() []*workload {
	var out []*workload
	for _, d := range in.Deployments {
		out = append(out, &workload{
			object: of("Deployment", d), namespace: d.Namespace, labels: d.Spec.Template.Labels, spec: &d.Spec.Template.Spec,
			service: d.Namespace == system && d.Spec.Template.Labels["app.kubernetes.io/component"] == "service",
		})
	}
	for _, d := range in.DaemonSets {
		out = append(out, &workload{object: of("DaemonSet", d), namespace: d.Namespace, labels: d.Spec.Template.Labels, spec: &d.Spec.Template.Spec})
	}
	for _, s := range in.Templates {
		out = append(out, &workload{
			object: of("SandboxTemplate", s), namespace: s.Namespace, labels: s.Spec.PodTemplate.ObjectMeta.Labels, spec: &s.Spec.PodTemplate.Spec, sandbox: true,
		})
	}
	return out
}

// containers are all of a pod, those that run first included.
func (w *workload) containers() []*corev1.Container {
	var out []*corev1.Container
	for _, list := range [][]corev1.Container{w.spec.InitContainers, w.spec.Containers} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}

// name is what a workload is called by its account, which is its identity.
func (w *workload) account() string { return w.spec.ServiceAccountName }

// selected are the workloads of a namespace whose pods a selector matches; a nil selector matches none.
func (c *checker) selected(who fmt.Stringer, namespace string, selector *metav1.LabelSelector) []*workload {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		c.that(false, who, "selector: %v", err)
		return nil
	}
	var out []*workload
	for _, w := range c.workloads {
		if w.namespace == namespace && s.Matches(labels.Set(w.labels)) {
			out = append(out, w)
		}
	}
	return out
}

// namespaces are those of the installation that a selector matches.
func (c *checker) namespaces(who fmt.Stringer, selector *metav1.LabelSelector) []string {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		c.that(false, who, "selector: %v", err)
		return nil
	}
	var out []string
	for _, n := range c.Namespaces {
		set := labels.Set{"kubernetes.io/metadata.name": n.Name} // the API server sets it
		maps.Copy(set, n.Labels)
		if s.Matches(set) {
			out = append(out, n.Name)
		}
	}
	return out
}

// settings are those of the installation.
func (c *checker) settings() map[string]string { return c.data(system, "cofferdam-settings") }

// expand puts the values of variables in the place of $(NAME), as the kubelet does, and names those that there are not.
func expand(text string, values map[string]string) (out string, missing []string) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$(")
		b.WriteString(before)
		if !found {
			return b.String(), missing
		}
		name, after, closed := strings.Cut(rest, ")")
		if !closed {
			b.WriteString("$(" + rest)
			return b.String(), missing
		}
		if value, ok := values[name]; ok {
			b.WriteString(value)
		} else {
			missing = append(missing, name)
		}
		text = after
	}
}
