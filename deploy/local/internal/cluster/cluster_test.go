package cluster

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
)

// Each Secret that the services mount is there with the key that they read, made once, and a token of the data folder is
// good under the public key that the control plane gets.
func TestSecretsAreMadeOnce(t *testing.T) {
	d, err := datadir.Create(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := Secrets(d)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Secrets(d); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the second time they are others: %v", err)
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
			Data     map[string][]byte
			Binary   map[string][]byte `json:"binaryData"`
		}
	}
	if err := json.Unmarshal(first, &list); err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{}
	for _, i := range list.Items {
		got[i.Metadata.Namespace+"/"+i.Metadata.Name] = nil
		for _, data := range []map[string][]byte{i.Data, i.Binary} {
			for key, value := range data {
				got[i.Metadata.Namespace+"/"+i.Metadata.Name+"/"+key] = value
			}
		}
	}
	for _, name := range []string{
		"cofferdam-system/openfga-key/key", "cofferdam-dev/openfga-key/key", "cofferdam-system/binding-id-key/key", "cofferdam-system/store-password/password",
	} {
		if len(got[name]) < keyBytes {
			t.Errorf("%s has %d bytes", name, len(got[name]))
		}
	}
	for _, name := range []string{"cofferdam-system/blob-credentials", "cofferdam-system/tool-credentials", "cofferdam-system/model-keys"} {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	var seal, public jose.JSONWebKeySet
	if err := json.Unmarshal(got["cofferdam-system/capability-keys/keys.json"], &seal); err != nil || len(seal.Keys) != 1 {
		t.Fatalf("capability keys: %v", err)
	}
	if k := seal.Keys[0]; k.Algorithm != "A256GCMKW" || k.Use != "enc" || k.KeyID == "" {
		t.Errorf("the capability service does not take a key of %q for %q", k.Algorithm, k.Use)
	}
	if err := json.Unmarshal(got["cofferdam-system/oidc/jwks.json"], &public); err != nil || len(public.Keys) != 1 || !public.Keys[0].IsPublic() {
		t.Fatalf("the issuer's keys: %v", err)
	}
	i, err := issuer.Load(d)
	if err != nil {
		t.Fatal(err)
	}
	token, err := i.Token(issuer.Request{Subject: "user-1"})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signed.Verify(public.Keys[0].Key); err != nil {
		t.Errorf("a token of the data folder: %v", err)
	}
}

func TestNamesOfAgentsAndTools(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "f.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	agents, tools, err := names(
		write(`{"agents":[{"agent_id":"demo","tools":["fs.read","builtin.http_fetch"]}]}`),
		write(`{"servers":[{"namespace":"fs","tools":["read","list"]}]}`))
	if err != nil || len(agents) != 1 || agents[0] != "demo" || len(tools) != 3 {
		t.Errorf("%v, %v, %v", agents, tools, err)
	}
	for name, files := range map[string][2]string{
		"no agents":  {`{"agents":[]}`, `{"servers":[]}`},
		"no JSON":    {`{"agents":`, `{"servers":[]}`},
		"no servers": {`{"agents":[{"agent_id":"a"}]}`, ``},
	} {
		if _, _, err := names(write(files[0]), write(files[1])); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, _, err := names(filepath.Join(t.TempDir(), "none"), write(`{}`)); err == nil {
		t.Error("a file that is not there was taken")
	}
}
