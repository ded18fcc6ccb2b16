// Package chart makes the Helm chart out of the kustomize manifests: it renders the production overlay with marks in the
// place of the settings, and turns the marks into the values of the chart. There is one source, and the chart is not edited.
package chart

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"cofferdam.dev/tools/manifests/internal/render"
)

const (
	overlay   = "overlays/production"
	firstPort = 61001 // marks of ports are numbers that no object has
	generated = "# Made of deploy/kubernetes by `make chart`: do not edit.\n"
)

// files are the ConfigMaps whose contents are files of the installation.
func files() []string {
	return []string{"agents", "aliases", "catalogue", "sandbox-profiles", "harness-acp", "harness-stdio"}
}

// Generate returns the files of the chart by their names, for the manifests in a folder.
func Generate(kubernetes string) (map[string][]byte, error) {
	settings, err := Settings(filepath.Join(kubernetes, "base", "settings.env"))
	if err != nil {
		return nil, err
	}
	marked, marks := mark(settings)
	text, err := Overlay(kubernetes, overlay, marked)
	if err != nil {
		return nil, err
	}
	template, contents, err := templated(text, marks)
	if err != nil {
		return nil, err
	}
	settings["RUNTIME_CLASSES"] = "gvisor" // as the overlay says
	values, err := yaml.Marshal(map[string]any{"settings": settings, "files": contents})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"Chart.yaml":             []byte(generated + "apiVersion: v2\nname: cofferdam\ndescription: Sandboxes for agents, and what they may reach\ntype: application\nversion: 0.1.0\n"),
		"values.yaml":            append([]byte(generated+"# settings: those of base/settings.env. files: the ConfigMaps of agents, tools, models, profiles and hosted programs.\n"), values...),
		"templates/objects.yaml": append([]byte(generated), template...),
	}, nil
}

// Settings reads a file of KEY=VALUE lines.
func Settings(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not KEY=VALUE", path, line)
		}
		out[key] = value
	}
	return out, nil
}

// Overlay renders an overlay with settings of one's own, as an installation's overlay has them.
func Overlay(kubernetes, overlay string, settings map[string]string) (_ []byte, err error) {
	folder, err := os.MkdirTemp("", "overlay")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	base, err := filepath.Abs(kubernetes)
	if err != nil {
		return nil, err
	}
	if base, err = filepath.Rel(folder, base); err != nil {
		return nil, err
	}
	var env strings.Builder
	for key, value := range settings {
		fmt.Fprintf(&env, "%s=%s\n", key, value)
	}
	kustomization := fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
components: [%s]
generatorOptions: {disableNameSuffixHash: true}
configMapGenerator:
- {name: cofferdam-settings, namespace: cofferdam-system, behavior: merge, envs: [settings.env]}
`, filepath.Join(base, overlay), filepath.Join(base, "components/values"))
	for name, text := range map[string]string{"kustomization.yaml": kustomization, "settings.env": env.String()} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return render.Kustomize(folder)
}

// mark gives each setting a mark, and each mark what stands for it in the template.
func mark(settings map[string]string) (marked map[string]string, marks [][2]string) {
	marked = map[string]string{}
	keys := make([]string, 0, len(settings))
	for key := range settings {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	port := firstPort
	for _, key := range keys {
		value := ".Values.settings." + key
		switch {
		case strings.HasPrefix(key, "IMAGE_"):
			marked[key] = "mark-" + key + "-end@digest-" + key + "-end"
			marks = append(marks, [2]string{marked[key], "{{ " + value + " | quote }}"},
				[2]string{"digest-" + key + "-end", `{{ last (splitList "@" ` + value + ") | quote }}"})
		case strings.HasSuffix(key, "_PORT"):
			marked[key] = strconv.Itoa(port)
			marks = append(marks, [2]string{`"` + marked[key] + `"`, "{{ " + value + " | quote }}"}, [2]string{marked[key], "{{ int " + value + " }}"})
			port++
		default:
			marked[key] = "mark-" + key + "-end"
			marks = append(marks, [2]string{marked[key], "{{ " + value + " | quote }}"})
		}
	}
	return marked, marks
}

var documents = regexp.MustCompile(`(?m)^---\n`)

func templated(text []byte, marks [][2]string) (template []byte, contents map[string]any, err error) {
	contents = map[string]any{}
	var out bytes.Buffer
	for _, document := range documents.Split(string(text), -1) {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, nil, err
		}
		name, _ := object["metadata"].(map[string]any)["name"].(string)
		if object["kind"] == "ConfigMap" && slices.Contains(files(), name) {
			contents[name] = object["data"]
			object["data"] = "mark-files"
		}
		y, err := yaml.Marshal(object)
		if err != nil {
			return nil, nil, err
		}
		// What looks like a template is somebody else's.
		s := strings.NewReplacer("{{", `{{ "{{" }}`, "}}", `{{ "}}" }}`).Replace(string(y))
		s = strings.Replace(s, "mark-files", `{{ index .Values.files "`+name+`" | toJson }}`, 1)
		for _, m := range marks {
			s = strings.ReplaceAll(s, m[0], m[1])
		}
		fmt.Fprintf(&out, "---\n%s", s)
	}
	return out.Bytes(), contents, nil
}
