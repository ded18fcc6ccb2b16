package authz_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/authz"
)

// document is the part of OpenFGA's model format that this model uses.
type document struct {
	SchemaVersion   string `json:"schema_version"`
	TypeDefinitions []struct {
		Type      string                    `json:"type"`
		Relations map[string]map[string]any `json:"relations"`
		Metadata  struct {
			Relations map[string]struct {
				Users []struct {
					Type     string    `json:"type"`
					Relation string    `json:"relation"`
					Wildcard *struct{} `json:"wildcard"`
				} `json:"directly_related_user_types"`
			} `json:"relations"`
		} `json:"metadata"`
	} `json:"type_definitions"`
}

// People read and change the DSL, OpenFGA gets the JSON: they must say the same.
func TestTheTwoFormsOfTheModelAgree(t *testing.T) {
	t.Parallel()
	dec := json.NewDecoder(strings.NewReader(string(authz.ModelJSON())))
	dec.DisallowUnknownFields()
	var doc document
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if got := render(t, doc); got != authz.DSL() {
		t.Errorf("model.json says:\n%s\nmodel.fga says:\n%s", got, authz.DSL())
	}
}

func render(t *testing.T, doc document) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "model\n  schema %s\n", doc.SchemaVersion)
	for _, def := range doc.TypeDefinitions {
		fmt.Fprintf(&b, "\ntype %s\n", def.Type)
		if len(def.Relations) > 0 {
			b.WriteString("  relations\n")
		}
		for _, name := range slices.Sorted(maps.Keys(def.Relations)) {
			if this, ok := def.Relations[name]["this"]; !ok || len(def.Relations[name]) != 1 {
				t.Fatalf("%s#%s is not only direct (%v): teach this test", def.Type, name, this)
			}
			var users []string
			for _, u := range def.Metadata.Relations[name].Users {
				switch {
				case u.Wildcard != nil:
					users = append(users, u.Type+":*")
				case u.Relation != "":
					users = append(users, u.Type+"#"+u.Relation)
				default:
					users = append(users, u.Type)
				}
			}
			fmt.Fprintf(&b, "    define %s: [%s]\n", name, strings.Join(users, ", "))
		}
	}
	return b.String()
}

func TestTheNamesInCodeAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"define " + authz.CanInvoke + ":",
		"define " + authz.Operator + ":",
		"define " + authz.Member + ":",
		"type " + strings.TrimSuffix(authz.UserID("x"), ":x"),
		"type " + strings.TrimSuffix(authz.OrganizationID("x"), ":x"),
		"type " + strings.TrimSuffix(authz.AgentID("x"), ":x"),
		"type " + strings.TrimSuffix(authz.ToolID("x"), ":x"),
		"type " + strings.Split(authz.System, ":")[0],
		authz.EveryUser,
		strings.ReplaceAll(authz.OrganizationMembers("x"), ":x", ""),
	} {
		if !strings.Contains(authz.DSL(), line) {
			t.Errorf("the model has no %q", line)
		}
	}
}

func TestTheCallerOwnsTheModel(t *testing.T) {
	t.Parallel()
	clear(authz.ModelJSON())
	if !json.Valid(authz.ModelJSON()) {
		t.Error("a caller changed the model of everybody")
	}
}
