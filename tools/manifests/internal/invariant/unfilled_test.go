package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// given are settings of an installation that is complete.
func given(t *testing.T) map[string]string {
	t.Helper()
	text, err := production()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for key, value := range decoded(t, text).data(system, "cofferdam-settings") {
		switch {
		case strings.HasPrefix(key, "IMAGE_"):
			out[key] = "registry.example/" + strings.ToLower(key) + "@sha256:" + strings.Repeat("1", 64)
		case strings.HasSuffix(key, "_CIDR"):
			out[key] = "198.51.100.1/32"
		case strings.Contains(value, ".invalid"):
			out[key] = strings.ReplaceAll(value, ".invalid", ".example")
		case strings.HasPrefix(key, "OPENFGA_") && value == unset:
			out[key] = "01ABC"
		}
	}
	return out
}

// installed is production with settings, as an operator's overlay has it, and a profile.
func installed(t *testing.T, settings map[string]string, components ...string) *Installation {
	t.Helper()
	var literals []string
	for key, value := range settings {
		literals = append(literals, fmt.Sprintf("%q", key+"="+value))
	}
	in := decoded(t, overlay(t, "overlays/production", components, literals...))
	get(in.ConfigMaps, system+"/sandbox-profiles").Data["profiles.json"] = `{"profiles": [{}]}`
	return in
}

// What the manifests cannot know is asked for, and only that: an installation with all of it is complete.
func TestWhatIsNotFilledIn(t *testing.T) {
	t.Parallel()
	full := given(t)
	complete := installed(t, full)
	if wrong := append(Unfilled(complete), Check(complete)...); len(wrong) > 0 {
		t.Fatalf("an installation that is complete:\n%s", strings.Join(wrong, "\n"))
	}
	text, err := production()
	if err != nil {
		t.Fatal(err)
	}
	ours := Unfilled(decoded(t, text))
	for key := range full {
		asked := slices.ContainsFunc(ours, func(s string) bool { return strings.Contains(s, " "+key+" is still ") })
		if strings.HasSuffix(key, "_PORT") || asked {
			continue
		}
		t.Errorf("nobody asks for %s:\n%s", key, strings.Join(ours, "\n"))
	}
	if !slices.ContainsFunc(ours, func(s string) bool { return strings.Contains(s, "profiles.json has no profile") }) {
		t.Errorf("nobody asks for a profile:\n%s", strings.Join(ours, "\n"))
	}
	for name, row := range map[string]struct {
		change     func(map[string]string)
		components []string
		says       string
	}{
		"an image":                   {func(s map[string]string) { delete(s, "IMAGE_AGENT_STDIO") }, nil, "IMAGE_AGENT_STDIO is still registry.invalid/"},
		"an argument":                {func(s map[string]string) { delete(s, "OPENFGA_MODEL_ID") }, nil, "OPENFGA_MODEL_ID is still unset"},
		"an argument of a component": {func(map[string]string) {}, []string{"components/embeddings"}, "EMBEDDING_ALIAS is still unset"},
		"an address":                 {func(s map[string]string) { delete(s, "MODELS_CIDR") }, nil, "MODELS_CIDR is still 192.0.2.6/32"},
		"a part of a value":          {func(s map[string]string) { delete(s, "STATE_BLOB_URL") }, nil, "STATE_BLOB_URL is still s3://"},
		"an example":                 {func(map[string]string) {}, []string{"components/artifacts"}, "artifacts-acp: still has 192.0.2.9/32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := maps.Clone(full)
			row.change(settings)
			wrong := Unfilled(installed(t, settings, row.components...))
			if len(wrong) != 1 || !strings.Contains(wrong[0], row.says) {
				t.Errorf("want just what says %q:\n%s", row.says, strings.Join(wrong, "\n"))
			}
		})
	}
	// A value that was copied nowhere: components/values was not listed.
	uncopied := installed(t, full)
	deployment(uncopied, "modelproxy").Spec.Template.Spec.Containers[0].Image = "registry.invalid/x@sha256:" + strings.Repeat("0", 64)
	if wrong := Unfilled(uncopied); len(wrong) != 1 || !strings.Contains(wrong[0], "Deployment cofferdam-system/modelproxy: still has registry.invalid/x@sha256:0") {
		t.Errorf("an image that no setting gave:\n%s", strings.Join(wrong, "\n"))
	}
}

// An operator may have policies of his own, about whatever they are.
func TestPoliciesOfTheOperator(t *testing.T) {
	t.Parallel()
	text, err := production()
	if err != nil {
		t.Fatal(err)
	}
	in := decoded(t, text)
	in.Admission = append(in.Admission, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "labels-of-mine"}})
	if wrong := Check(in); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
}
