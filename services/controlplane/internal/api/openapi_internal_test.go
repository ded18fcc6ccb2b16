package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// The document has the routes that are served, each once, and no others.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string   `json:"operationId"`
			Tags        []string `json:"tags"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	described := map[string][]string{}
	ids := map[string]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			route := strings.ToUpper(method) + " " + path
			// An action is a part of a segment, which no pattern of net/http tells apart.
			if action, _, is := strings.Cut(route, ":"); is {
				route = action
			}
			for _, tag := range op.Tags {
				if !slices.Contains(described[tag], route) {
					described[tag] = append(described[tag], route)
				}
			}
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s has the id %q", route, op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
	a := &API{}
	for tag, routes := range map[string]map[string]handler{"callers": a.callers(), "operators": a.operators()} {
		want := []string{}
		for route := range routes {
			want = append(want, route)
		}
		if tag == "callers" {
			want = append(want, openAPIRoute)
		}
		slices.Sort(want)
		if got := described[tag]; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("%s: described are %q, served are %q", tag, got, want)
		}
	}
}
