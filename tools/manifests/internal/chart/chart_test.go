package chart

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"cofferdam.dev/tools/manifests/internal/render"
)

const kubernetes = "../../../../deploy/kubernetes"

func TestChartIsWhatTheManifestsMake(t *testing.T) {
	t.Parallel()
	files, err := Generate(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(kubernetes, "chart", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("chart/%s is stale: run `make chart` and commit the result (%v)", name, err)
		}
	}
}

// With the values as they are, and with every one of them changed, the chart and an overlay give the same objects.
func TestChartAndOverlayGiveTheSameObjects(t *testing.T) {
	t.Parallel()
	settings, err := Settings(filepath.Join(kubernetes, "base", "settings.env"))
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{"RUNTIME_CLASSES": "gvisor"}
	for key, value := range settings {
		switch {
		case strings.HasPrefix(key, "IMAGE_"):
			changed[key] = "example.org/" + strings.ToLower(key) + "@sha256:" + strings.Repeat("1", 64)
		case strings.HasSuffix(key, "_PORT"):
			changed[key] = "1" + value[:2]
		case strings.HasSuffix(key, "_CIDR"):
			changed[key] = "198.51.100.0/24"
		default:
			changed[key] = "changed " + key
		}
	}
	for name, with := range map[string]map[string]string{"as they are": {"RUNTIME_CLASSES": "gvisor"}, "changed": changed} {
		values := map[string]any{}
		for key, value := range with {
			values[key] = value
		}
		fromChart, err := render.Helm(filepath.Join(kubernetes, "chart"), map[string]any{"settings": values})
		if err != nil {
			t.Fatal(err)
		}
		fromOverlay, err := Overlay(kubernetes, overlay, with)
		if err != nil {
			t.Fatal(err)
		}
		got, want := objects(t, fromChart), objects(t, fromOverlay)
		if len(want) < 50 {
			t.Fatalf("only %d objects", len(want))
		}
		for id := range maps.Keys(want) {
			if !reflect.DeepEqual(got[id], want[id]) {
				t.Errorf("values %s: %s:\n%v\nwant\n%v", name, id, got[id], want[id])
			}
		}
		if len(got) != len(want) {
			t.Errorf("values %s: %d objects of the chart, %d of the overlay", name, len(got), len(want))
		}
	}
}

func objects(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, document := range documents.Split(string(text), -1) {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if object == nil {
			continue
		}
		m, _ := object["metadata"].(map[string]any)
		id, _ := yaml.Marshal([]any{object["kind"], m["namespace"], m["name"]})
		out[string(id)] = object
	}
	return out
}
