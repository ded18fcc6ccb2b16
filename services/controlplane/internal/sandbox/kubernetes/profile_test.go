package kubernetes

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/services/controlplane/internal/sandbox/signature/signaturetest"
)

func right() map[string]any {
	return map[string]any{
		"name": "default", "harness": "native", "warm_pool": "workers", "template": "worker", "image": image, "runtime_class": "",
		"description_file": "native.json", "signature": map[string]any{"bundle_file": "b", "public_key_file": "k"},
	}
}

func encode(t testing.TB, profiles ...map[string]any) []byte {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"profiles": profiles})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestProfiles(t *testing.T) {
	got, err := ParseProfiles(encode(t, right()))
	if err != nil {
		t.Fatal(err)
	}
	if p := got[0]; p.WorkerContainer != "worker" || p.ServiceAccount != "worker" || p.Max != 1000 || p.LifetimeSeconds != 86400 || p.ColdStart || p.AgentContainer != "" {
		t.Errorf("defaults: %+v", p)
	}
	files := map[string]any{"bundle_file": "b", "public_key_file": "k"}
	hosted := map[string]any{"harness": "acp", "agent_image": agentImage, "agent_signature": files, "init_containers": []string{"runner"}}
	for name, row := range map[string]struct {
		change map[string]any
		want   string
	}{
		"hosted":                  {hosted, ""},
		"unsigned":                {map[string]any{"signature": nil, "unsigned": true}, ""},
		"no name":                 {map[string]any{"name": ""}, "name"},
		"no harness":              {map[string]any{"harness": "A"}, "harness"},
		"no pool":                 {map[string]any{"warm_pool": "../x"}, "warm_pool"},
		"no template":             {map[string]any{"template": ""}, "template"},
		"a tag":                   {map[string]any{"image": "registry.example/worker:latest"}, "image"},
		"half a digest":           {map[string]any{"image": image[:len(image)-1]}, "image"},
		"two digests":             {map[string]any{"image": image + "@" + digestOf(image)}, "image"},
		"no signature":            {map[string]any{"signature": nil}, "signature"},
		"half a signature":        {map[string]any{"signature": map[string]any{"bundle_file": "b"}}, "signature"},
		"signed and unsigned":     {map[string]any{"unsigned": true}, "signature"},
		"agent unsigned":          {map[string]any{"agent_image": agentImage}, "agent_signature"},
		"agent without image":     {map[string]any{"agent_container": "agent"}, "agent_container"},
		"agent is the worker":     {map[string]any{"agent_image": agentImage, "agent_signature": files, "agent_container": "worker"}, "agent_container"},
		"the default account":     {map[string]any{"service_account": "default"}, "service_account"},
		"no description":          {map[string]any{"description_file": ""}, "description_file"},
		"too many":                {map[string]any{"max": 1 << 20}, "max"},
		"too long":                {map[string]any{"lifetime_seconds": 1 << 40}, "lifetime_seconds"},
		"a key that is not known": {map[string]any{"privileged": true}, "privileged"},
	} {
		doc := right()
		maps.Copy(doc, row.change)
		for k, v := range doc {
			if v == nil {
				delete(doc, k)
			}
		}
		_, err := ParseProfiles(encode(t, doc))
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, doc := range map[string][]byte{"none": encode(t), "twice": encode(t, right(), right()), "garbage": []byte("[")} {
		if _, err := ParseProfiles(doc); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A control plane does not start with an image that its operator has not signed.
func TestLoadProfiles(t *testing.T) {
	signer, another := signaturetest.NewSigner(t), signaturetest.NewSigner(t)
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	description := file("native.json", []byte(`{"harness_id":"native","adapter_version":"1","contract_versions":[1],"execution_mode":"in_process","options_schema":{"type":"object"},"capabilities":{}}`))
	key, large := file("key", signer.PEM), file("large", make([]byte, 4<<20))
	load := func(bundle, key, description string) error {
		doc := right()
		doc["description_file"], doc["signature"] = description, map[string]any{"bundle_file": bundle, "public_key_file": key}
		_, err := LoadProfiles(file("profiles", encode(t, doc)))
		return err
	}
	signed := file("signed", signer.Sign(t, digestOf(image)))
	if err := load(signed, key, description); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string][3]string{
		"other digest":          {file("other", signer.Sign(t, digestOf(agentImage))), key, description},
		"wrong key":             {file("wrong", another.Sign(t, digestOf(image))), key, description},
		"unsigned":              {file("unsigned", []byte("{}")), key, description},
		"no bundle":             {filepath.Join(dir, "none"), key, description},
		"large bundle":          {large, key, description},
		"no key":                {signed, filepath.Join(dir, "none"), description},
		"no description":        {signed, key, filepath.Join(dir, "none")},
		"large description":     {signed, key, large},
		"another's description": {signed, key, file("acp.json", []byte(`{"harness_id":"acp"}`))},
	} {
		if err := load(row[0], row[1], row[2]); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := LoadProfiles(large); err == nil {
		t.Error("a large file: accepted")
	}
}

// Whatever stands in the file, a profile that is taken is one that pins its images.
func FuzzParseProfiles(f *testing.F) {
	f.Add(encode(f, right()))
	f.Add([]byte(`{"profiles":[{"name":"a","harness":"native","image":"x@sha256:0"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		profiles, err := ParseProfiles(raw)
		if err != nil {
			return
		}
		for _, p := range profiles {
			if len(digestOf(p.Image)) != len("sha256:")+64 || !p.Unsigned && p.Signature == nil || p.Max < 1 || p.LifetimeSeconds < 1 {
				t.Errorf("%+v", p)
			}
		}
	})
}
