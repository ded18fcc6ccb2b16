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

// given are placeholders of settings, and what an operator gives in their place.
func given(t *testing.T) (placeholders, values map[string]string) {
	t.Helper()
	text, err := production()
	if err != nil {
		t.Fatal(err)
	}
	placeholders, values = decoded(t, text).data(system, "cofferdam-settings"), map[string]string{}
	for n, key := range slices.Sorted(maps.Keys(placeholders)) {
		value := placeholders[key]
		switch {
		case strings.HasPrefix(key, "IMAGE_"):
			values[key] = fmt.Sprintf("registry.example/%s@sha256:%064d", strings.ToLower(key), n+1)
		case strings.HasSuffix(key, "_CIDR"):
			values[key] = fmt.Sprintf("198.51.100.%d/32", n)
		case strings.Contains(value, ".invalid"):
			values[key] = strings.ReplaceAll(value, ".invalid", "."+strings.ToLower(key)+".example") // each another: none is a part of another one
		case strings.HasPrefix(key, "OPENFGA_") && value == unset:
			values[key] = "01" + key
		}
	}
	return placeholders, values
}

// filledIn is production with settings, as an operator's overlay has it, and with a profile.
func filledIn(t *testing.T, settings map[string]string, components ...string) string {
	t.Helper()
	var literals []string
	for key, value := range settings {
		literals = append(literals, fmt.Sprintf("%q", key+"="+value))
	}
	return strings.Replace(string(overlay(t, "overlays/production", components, literals...)), `{"profiles": []}`, `{"profiles": [{}]}`, 1)
}

// What the manifests cannot know is asked for, and only that: an installation with all of it is complete.
func TestWhatIsNotFilledIn(t *testing.T) {
	t.Parallel()
	placeholders, values := given(t)
	complete := filledIn(t, values)
	in := decoded(t, []byte(complete))
	if wrong := append(Unfilled(in), Check(in)...); len(wrong) > 0 {
		t.Fatalf("an installation that is complete:\n%s", strings.Join(wrong, "\n"))
	}
	for key, value := range values {
		in := decoded(t, []byte(strings.NewReplacer(value, placeholders[key], digestOf(value), digestOf(placeholders[key])).Replace(complete)))
		if wrong := Unfilled(in); len(wrong) != 1 || !strings.Contains(wrong[0], " "+key+" is still "+placeholders[key]) {
			t.Errorf("want just that %s is not given:\n%s", key, strings.Join(wrong, "\n"))
		}
	}
	// A value that was copied nowhere: components/values was not listed.
	deployment(in, "modelproxy").Spec.Template.Spec.Containers[0].Image = placeholders["IMAGE_MODELPROXY"]
	// A file of the base.
	get(in.ConfigMaps, system+"/sandbox-profiles").Data["profiles.json"] = `{"profiles": []}`
	says(t, Unfilled(in), "ConfigMap cofferdam-system/sandbox-profiles: profiles.json has no profile", "Deployment cofferdam-system/modelproxy: still has registry.invalid/")
	// What only a component takes, and an example that was not copied.
	more := filledIn(t, values, "components/embeddings", "components/artifacts")
	says(t, Unfilled(decoded(t, []byte(more))), "EMBEDDING_ALIAS is still unset", "artifacts-acp: still has 192.0.2.9/32")
}

// digestOf is an image's, or what stands in no object.
func digestOf(image string) string {
	if _, digest, ok := strings.Cut(image, "@sha256:"); ok {
		return digest
	}
	return "no image: " + image
}

// says compares what is wrong with the beginnings of what has to be said, and nothing else.
func says(t *testing.T, wrong []string, want ...string) {
	t.Helper()
	ok := len(wrong) == len(want)
	for i := range want {
		ok = ok && strings.Contains(wrong[i], want[i])
	}
	if !ok {
		t.Errorf("want just\n%s\nand there is\n%s", strings.Join(want, "\n"), strings.Join(wrong, "\n"))
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
