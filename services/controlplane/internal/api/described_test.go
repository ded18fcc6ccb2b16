package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
)

// schemaOf decodes a part of the document that is served.
func schemaOf(t *testing.T, f *fixture, into any, path ...string) {
	t.Helper()
	raw := json.RawMessage(f.get(t, "/api/v1/openapi.json").body)
	for _, name := range path {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw, &members); err != nil || members[name] == nil {
			t.Fatalf("the document has no %s in %q: %v", name, path, err)
		}
		raw = members[name]
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// Every code and category that an error can have is in the document, and no others;
// docs/api.md says of each code what the code says.
func TestEveryCodeIsDescribed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	var codes, categories, want, wantCategories []string
	of := []string{"components", "schemas", "Error", "properties", "error", "properties"}
	schemaOf(t, f, &codes, append(of, "code", "enum")...)
	schemaOf(t, f, &categories, append(of, "category", "enum")...)
	text, err := os.ReadFile("../../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(text)) {
		// A row of the table of codes, by its first two columns.
		if cells := strings.Split(line, " | "); len(cells) == 4 && strings.HasPrefix(line, "| `") && len(cells[1]) == 3 {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	var wantRows []string
	for _, c := range fault.Codes() {
		want = append(want, string(c))
		if category := string(c.Category()); !slices.Contains(wantCategories, category) {
			wantCategories = append(wantCategories, category)
		}
		again := "no"
		if c.Retryable() {
			again = "yes"
		}
		wantRows = append(wantRows, fmt.Sprintf("| `%s` | %d | %s | %s |", c, c.HTTPStatus(), again, c.Message()))
	}
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"codes of openapi.json", codes, want},
		{"categories of openapi.json", categories, wantCategories},
		{"rows of docs/api.md", rows, wantRows},
	} {
		slices.Sort(c.got)
		slices.Sort(c.want)
		if !slices.Equal(c.got, c.want) {
			t.Errorf("the %s are\n%s\nand package fault has\n%s", c.what, strings.Join(c.got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// The defaults that the document has of an agent are those that an agent gets which
// leaves them out.
func TestTheDefaultsOfAnAgentAreDescribed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	type defaults map[string]struct {
		Default *uint32 `json:"default"`
	}
	var given struct {
		Limits     map[string]uint32 `json:"limits"`
		Interrupts map[string]any    `json:"interrupts"`
		Scopes     []string          `json:"memory_scopes"`
	}
	if a := f.put(t, f.public, "operator-1", "demo", goodAgent); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	f.send(t, f.requestTo(t, f.public, "operator-1", http.MethodGet, "/api/v1/agents/demo", "")).json(t, &given)
	if len(given.Limits) == 0 {
		t.Fatal("the agent has no limits")
	}
	for _, schema := range []string{"AgentDraft", "AgentVersion"} {
		of := []string{"components", "schemas", schema, "properties"}
		var limits defaults
		schemaOf(t, f, &limits, append(of, "limits", "properties")...)
		for name, limit := range given.Limits {
			if d := limits[name].Default; d == nil || *d != limit {
				t.Errorf("%s: limits.%s is %d by default, described is %v", schema, name, limit, d)
			}
		}
		var expiry uint32
		schemaOf(t, f, &expiry, append(of, "interrupts", "properties", "expire_after_seconds", "default")...)
		if given.Interrupts["expire_after_seconds"] != float64(expiry) {
			t.Errorf("%s: %v, described is %d", schema, given.Interrupts, expiry)
		}
		var scopes []string
		schemaOf(t, f, &scopes, append(of, "memory_scopes", "default")...)
		if !slices.Equal(scopes, given.Scopes) {
			t.Errorf("%s: %q, described is %q", schema, given.Scopes, scopes)
		}
	}
}
