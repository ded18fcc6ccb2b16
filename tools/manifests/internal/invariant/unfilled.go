package invariant

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// placeholder is what the manifests have where only an operator knows what has to stand: a name that never is (RFC 2606), an
// address that is for documentation (RFC 5737), a digest of nothing.
var placeholder = regexp.MustCompile(`[^\s"']*(\.invalid\b|\b192\.0\.2\.\d|sha256:0{64})[^\s"']*`)

// unset is the same for what has no form of its own.
const unset = "unset"

// Unfilled names what an operator has still to give, each as "OBJECT: what". [Check] takes it, as our own overlays have it.
func Unfilled(in *Installation) []string {
	c := &checker{Installation: in, workloads: in.workloads()}
	who := object{"ConfigMap", system + "/cofferdam-settings"}
	settings := c.settings()
	var missing []string // placeholders of settings
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		value := settings[key]
		if value != unset && !placeholder.MatchString(value) {
			continue
		}
		missing = append(missing, value)
		c.that(!c.takes(key, value), who, "%s is still %s: give it your own value, or leave out what takes it", key, value)
	}
	for _, o := range c.others() {
		for _, text := range placeholder.FindAllString(content(o.of), -1) {
			// A part of it too: a worker is told its digest alone.
			given := !slices.ContainsFunc(missing, func(m string) bool { return strings.Contains(m, text) })
			c.that(!given, o.object, "still has %s: give it your own, or list components/values last, which copies it from the settings", text)
		}
	}
	// Agents may come by the API; what they run in may not.
	for file, text := range c.data(system, "sandbox-profiles") {
		var doc struct{ Profiles []json.RawMessage }
		empty := strings.HasSuffix(file, "profiles.json") && json.Unmarshal([]byte(text), &doc) == nil && len(doc.Profiles) == 0
		c.that(!empty, object{"ConfigMap", system + "/sandbox-profiles"}, "%s has no profile: replace it by your own", file)
	}
	slices.Sort(c.wrong)
	return slices.Compact(c.wrong)
}

// takes reports whether anything takes a setting: an argument that names it, or an object that has its value.
func (c *checker) takes(key, value string) bool {
	for _, w := range c.workloads {
		for _, container := range w.containers() {
			if slices.ContainsFunc(container.Args, func(arg string) bool { return strings.Contains(arg, "$("+key+")") }) {
				return true
			}
		}
	}
	return value != unset && slices.ContainsFunc(c.others(), func(o named) bool { return strings.Contains(content(o.of), value) })
}

type named struct {
	object

	of any
}

// others are the objects beside the settings that have anything of an operator.
func (c *checker) others() []named {
	var out []named
	add := func(kind string, o metav1.Object) { out = append(out, named{of(kind, o), o}) }
	for _, o := range c.ConfigMaps {
		if full(o) != system+"/cofferdam-settings" {
			add("ConfigMap", o)
		}
	}
	for _, o := range c.DaemonSets {
		add("DaemonSet", o)
	}
	for _, o := range c.Deployments {
		add("Deployment", o)
	}
	for _, o := range c.Policies {
		add("NetworkPolicy", o)
	}
	for _, o := range c.Templates {
		add("SandboxTemplate", o)
	}
	return out
}

// content is an object as it is written.
func content(o any) string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was read from text
	}
	return string(text)
}
