package demomodel

import (
	"slices"
	"testing"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		wanted  string
		offered []string
		want    string
	}{
		"name itself":              {"fs_read", []string{"fs_read", "fs_write"}, "fs_read"},
		"id":                       {"fs.read", []string{"fs_write", "fs_read"}, "fs_read"},
		"doubled underscore":       {"fs.read_text", []string{"fs__read_text"}, "fs__read_text"},
		"doubled in the id's part": {"fs.read_text", []string{"fs_read__text"}, "fs_read__text"},
		"other case":               {"GitHub.createIssue", []string{"github_createissue"}, "github_createissue"},
		"mark behind":              {"fs.read", []string{"fs_read_9f3a"}, "fs_read_9f3a"},
		"mark behind and prefix":   {"demo.echo", []string{"mcp__gw__demo_echo_1791jhd"}, "mcp__gw__demo_echo_1791jhd"},
		"digest without a number":  {"Files.read-text", []string{"files_read_text_" + digest("Files.read_text"), "files_read_text_" + digest("Files.read-text")}, "files_read_text_" + digest("Files.read-text")},
		"prefix of a program":      {"fs.read", []string{"mcp__gw__fs_read"}, "mcp__gw__fs_read"},
		"cut short":                {"documents.read_the_whole_text_of_a_file", []string{"documents_read_the_whole_text_o_" + digest("documents.read_the_whole_text_of_a_file")}, "documents_read_the_whole_text_o_" + digest("documents.read_the_whole_text_of_a_file")},
		"exact before others":      {"fs_read", []string{"x_fs_read", "fs.read", "fs_read"}, "fs_read"},
		"same whatever the order":  {"fs.read", []string{"bb_fs_read", "aa_fs_read", "ccc_fs_read"}, "aa_fs_read"},
		"longer name is another":   {"fs.read", []string{"fs_read_text"}, ""},
		"longer id is another":     {"fs.read_text", []string{"fs_read"}, ""},
		"end of a word":            {"fs.read", []string{"xfs_read"}, ""},
		"none offered":             {"fs.read", nil, ""},
		"no name":                  {"", []string{"", "a"}, ""},
		"only punctuation":         {"...", []string{"fs_", "___"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			offers := make([]offer, len(tt.offered))
			for i, n := range tt.offered {
				offers[i] = offer{name: n}
			}
			for range 2 {
				got, ok := resolve(tt.wanted, offers)
				if got.name != tt.want || ok != (tt.want != "") {
					t.Errorf("resolve(%q) = %q, %v, want %q", tt.wanted, got.name, ok, tt.want)
				}
				slices.Reverse(offers)
			}
		})
	}
}

// An agent with namespaces takes them apart, and the script need not know.
func TestResolveInNamespaces(t *testing.T) {
	t.Parallel()
	offers := []offer{{name: "demo_echo", namespace: "mcp__other"}, {name: "demo_echo", namespace: "mcp__gw"}, {name: "demo_list"}}
	for wanted, want := range map[string]offer{
		"mcp__gw__demo_echo": offers[1],
		"gw.demo_echo":       offers[1],
		"other.demo_echo":    offers[0],
		"demo.echo":          offers[1], // the shorter name
		"demo.list":          offers[2],
	} {
		got, ok := resolve(wanted, offers)
		if !ok || got.namespace != want.namespace || got.name != want.name {
			t.Errorf("resolve(%q) = %+v, %v", wanted, got, ok)
		}
	}
}
