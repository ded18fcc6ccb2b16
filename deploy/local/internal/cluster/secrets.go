package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
)

const (
	// System is the namespace of the services.
	System = "cofferdam-system"
	// Development is that of what production has elsewhere.
	Development = "cofferdam-dev"

	keyBytes    = 32
	maxKeyBytes = 8 << 10
)

// object is a Secret or a ConfigMap.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]any    `json:"metadata"`
	Data       map[string][]byte `json:"data,omitempty"`       // of a Secret
	BinaryData map[string][]byte `json:"binaryData,omitempty"` // of a ConfigMap
}

func newObject(kind, namespace, name string) object {
	return object{APIVersion: "v1", Kind: kind, Metadata: map[string]any{
		"namespace": namespace, "name": name, "labels": map[string]string{"app.kubernetes.io/part-of": "cofferdam"},
	}}
}

func secret(namespace, name, key string, value []byte) object {
	o := newObject("Secret", namespace, name)
	if key != "" {
		o.Data = map[string][]byte{key: value}
	}
	return o
}

// Secrets gives the Secrets of an installation, and the public key of its issuer of callers' tokens, as one List in JSON.
// The keys are those of the data folder, and are made where they are missing.
func Secrets(d datadir.Dir) ([]byte, error) {
	var errs []error
	keep := func(path string, create func() ([]byte, error)) []byte {
		raw, err := datadir.Keep(path, maxKeyBytes, create)
		errs = append(errs, err)
		return raw
	}
	openFGA := keep(d.OpenFGAKey(), randomHex)
	items := []object{
		secret(System, "openfga-key", "key", openFGA), secret(Development, "openfga-key", "key", openFGA),
		secret(System, "binding-id-key", "key", keep(d.BindingKey(), randomHex)),
		secret(System, "capability-keys", "keys.json", keep(d.CapabilityKeys(), sealKeys)),
		// The database of development knows no users, objects are in a folder, the sample server and the demo model need no
		// keys. The services mount a Secret all the same.
		secret(System, "store-password", "password", keep(d.StorePassword(), randomHex)),
		secret(System, "blob-credentials", "", nil), secret(System, "tool-credentials", "", nil), secret(System, "model-keys", "", nil),
	}
	if _, err := issuer.Open(d); err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	jwks, err := os.ReadFile(d.IssuerJWKS())
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("cluster: keys: %w", err)
	}
	oidc := newObject("ConfigMap", System, "oidc")
	oidc.BinaryData = map[string][]byte{"jwks.json": jwks}
	raw, err := json.MarshalIndent(struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Items      []object `json:"items"`
	}{"v1", "List", append(items, oidc)}, "", "  ")
	if err != nil {
		return nil, errors.New("cluster: the manifests cannot be encoded") // the error could quote one
	}
	return append(raw, '\n'), nil
}

func randomHex() ([]byte, error) {
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	return hex.AppendEncode(nil, key), nil
}

// sealKeys is a file as the capability service takes it: one key that encrypts its signing keys in the store.
func sealKeys() ([]byte, error) {
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	return json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key, KeyID: rand.Text(), Use: "enc", Algorithm: string(jose.A256GCMKW)}}})
}
