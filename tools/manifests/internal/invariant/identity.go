package invariant

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	workloadAPI     = "csi.spiffe.io"
	workloadSocket  = "/spiffe-workload-api"
	workerContainer = "worker"
	// exampleUID stands for a pod that there is not yet.
	exampleUID = "5a1f9d5e-0000-4000-8000-000000000001"
)

var spiffeID = regexp.MustCompile(`spiffe://[^,\s]+`)

// identities: the Workload API is in each service and in each worker, and in nothing else; and SPIRE, where an
// installation has it, makes exactly the identities that services and workers expect of one another.
func identities(c *checker) {
	issued := map[string]bool{}
	for _, w := range c.workloads {
		volume := ""
		for _, v := range w.spec.Volumes {
			if v.CSI == nil {
				continue
			}
			c.that(v.CSI.Driver == workloadAPI && is(v.CSI.ReadOnly, true), w, "volume %s is of the driver %s, or can be written", v.Name, v.CSI.Driver)
			c.that(volume == "", w, "has the Workload API twice")
			volume = v.Name
		}
		wants := w.service || w.sandbox
		c.that((volume != "") == wants, w, "the Workload API is in services and in sandboxes, and in nothing else")
		for _, container := range w.containers() {
			mounted := false
			for _, m := range container.VolumeMounts {
				if volume != "" && m.Name == volume {
					mounted = true
					c.that(m.MountPath == workloadSocket && m.ReadOnly, w, "container %s has the Workload API in another place, or can write to it", container.Name)
				}
			}
			entitled := wants && (w.service || container.Name == workerContainer)
			c.that(mounted == entitled, w, "container %s: the Workload API is for services and for workers", container.Name)
		}
		if id := c.issue(w, wants); id != "" {
			issued[id] = true
		}
	}
	c.ruled()
	if len(c.Identities) == 0 {
		return
	}
	for _, w := range c.workloads {
		for _, container := range w.containers() {
			for _, arg := range container.Args {
				text, _ := expand(arg, c.environment(w, container))
				for _, id := range spiffeID.FindAllString(text, -1) {
					c.that(issued[id], w, "container %s expects %s, which nobody gets", container.Name, id)
				}
			}
		}
	}
}

// ruled: cofferdam-nodeidentity, where an installation has it, gives identities to those accounts that have a use for one.
func (c *checker) ruled() {
	text, ok := c.data("cofferdam-identity", "nodeidentity")["rules.json"]
	if !ok {
		return
	}
	who := object{"ConfigMap", "cofferdam-identity/nodeidentity"}
	var file struct {
		Rules []struct {
			Namespace string   `json:"namespace"`
			Accounts  []string `json:"service_accounts"`
			Identity  string   `json:"identity"`
		} `json:"rules"`
	}
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		c.that(false, who, "rules.json: %v", err)
		return
	}
	have, want := map[string]bool{}, map[string]bool{}
	for _, r := range file.Rules {
		for _, account := range r.Accounts {
			have[r.Namespace+"/"+account+" as a "+r.Identity] = true
		}
	}
	for _, w := range c.workloads {
		switch {
		case w.service:
			want[w.namespace+"/"+w.account()+" as a service"] = true
		case w.sandbox:
			want[w.namespace+"/"+w.account()+" as a sandbox"] = true
		}
	}
	c.that(maps.Equal(have, want), who, "gives identities to %v: want %v", slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(want)))
}

// issue gives the identity that SPIRE would give to a pod, and sees that it is the one that its peers expect.
func (c *checker) issue(w *workload, wants bool) string {
	if len(c.Identities) == 0 {
		return "" // something else serves the driver
	}
	var by []*ClusterSPIFFEID
	for _, id := range c.Identities {
		if slices.Contains(c.namespaces(of("ClusterSPIFFEID", id), id.Spec.NamespaceSelector), w.namespace) && slices.Contains(c.selected(of("ClusterSPIFFEID", id), w.namespace, id.Spec.PodSelector), w) {
			by = append(by, id)
		}
	}
	if !wants {
		c.that(len(by) == 0, w, "gets an identity that it has no way to use")
		return ""
	}
	if len(by) != 1 {
		c.that(false, w, "%d ClusterSPIFFEIDs select it: want one", len(by))
		return ""
	}
	id, err := filled(by[0].Spec.SPIFFEIDTemplate, c.settings()["TRUST_DOMAIN"], w)
	who := of("ClusterSPIFFEID", by[0])
	if err != nil {
		c.that(false, who, "%v", err)
		return ""
	}
	want := "spiffe://" + c.settings()["TRUST_DOMAIN"] + "/svc/" + strings.TrimPrefix(w.name, system+"/")
	if w.sandbox {
		want = "spiffe://" + c.settings()["TRUST_DOMAIN"] + "/sandbox/" + exampleUID
		c.that(slices.Contains(by[0].Spec.WorkloadSelectorTemplates, "k8s:container-name:"+workerContainer), who, "does not name the container %s: an agent beside it would get the identity too", workerContainer)
	}
	c.that(id == want, who, "gives %s the identity %s: its peers expect %s", w.name, id, want)
	c.that(!by[0].Spec.Admin && !by[0].Spec.Downstream && len(by[0].Spec.FederatesWith) == 0, who, "gives rights on SPIRE itself, or in another trust domain")
	return id
}

// filled executes a template as spire-controller-manager does.
func filled(text, domain string, w *workload) (string, error) {
	t, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, map[string]any{
		"TrustDomain": domain, "PodSpec": w.spec,
		"PodMeta": metav1.ObjectMeta{Name: "pod", Namespace: w.namespace, UID: exampleUID, Labels: labels.Set(w.labels)},
	})
	return b.String(), err
}
