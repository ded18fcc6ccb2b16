package toolbroker

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"cofferdam.dev/pkg/authz"
)

// storeTest is OpenFGA's format of tests of a store, as far as ours uses it.
type storeTest struct {
	Name      string       `yaml:"name"`
	ModelFile string       `yaml:"model_file"`
	Tuples    []storeTuple `yaml:"tuples"`
	Tests     []struct {
		Name   string       `yaml:"name"`
		Tuples []storeTuple `yaml:"tuples"`
		Check  []struct {
			User       string          `yaml:"user"`
			Object     string          `yaml:"object"`
			Assertions map[string]bool `yaml:"assertions"`
		} `yaml:"check"`
	} `yaml:"tests"`
}

type storeTuple struct {
	User     string `json:"user"     yaml:"user"`
	Relation string `json:"relation" yaml:"relation"`
	Object   string `json:"object"   yaml:"object"`
}

// The model's own tests, which ship with it, hold on the real server. That the
// server's form of the model says what the tests' model_file says is tested beside
// it.
func TestTheModelsOwnTests(t *testing.T) {
	folder := filepath.Join("..", "..", "pkg", "authz")
	raw, err := os.ReadFile(filepath.Join(folder, "model.fga.yaml"))
	must(t, err)
	var doc storeTest
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	must(t, dec.Decode(&doc))
	model, err := os.ReadFile(filepath.Join(folder, doc.ModelFile))
	must(t, err)
	if string(model) != authz.DSL() {
		t.Error("the tests are about another model")
	}
	answers := map[bool]int{}
	for _, test := range doc.Tests {
		t.Run(test.Name, func(t *testing.T) {
			g := newGrants(t)
			tuples := append(append([]storeTuple{}, doc.Tuples...), test.Tuples...)
			g.post(t, "/stores/"+g.store+"/write", map[string]any{"writes": map[string]any{"tuple_keys": tuples}})
			for _, c := range test.Check {
				for relation, want := range c.Assertions {
					got := g.post(t, "/stores/"+g.store+"/check", map[string]any{
						"tuple_key": storeTuple{c.User, relation, c.Object}, "authorization_model_id": g.model,
					}).Allowed
					if got != want {
						t.Errorf("%s %s %s: %v, want %v", c.User, relation, c.Object, got, want)
					}
					answers[got]++
				}
			}
		})
	}
	if answers[true] == 0 || answers[false] == 0 {
		t.Errorf("answers: %v: the tests tell nothing apart", answers)
	}
}
