package acp

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"cofferdam.dev/services/worker/internal/harness"
	"cofferdam.dev/services/worker/internal/loopback"
)

// ownPrefix begins the tool ids of an agent's own tools.
const ownPrefix = "agent."

const maxOwnName = 48

var (
	identifier = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
	// stamped is an id that an agent made of the tool's name and the time, or the
	// model's id of the call.
	stamped = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_.-]{0,127}?)(-[0-9]{9,}(-[0-9a-z]+)*|__call[A-Za-z0-9_-]*)$`)
	// marked ends in the mark of an agent that shortens names.
	marked = regexp.MustCompile(`^(.+)_[0-9a-z]{4,12}$`)
)

// ownName is the tool id of an agent's own tool, from the most telling of what
// the agent says: the name that it gives, the name in the call's id, a title that
// is a name and not what the tool is to do, or the kind.
func (c *call) ownName() string {
	name := c.name
	if m := stamped.FindStringSubmatch(c.key); name == "" && m != nil {
		name = m[1]
	}
	for _, title := range []string{c.first, c.title} { // the first may be the tool's name, and a later one what it does
		if name == "" && identifier.MatchString(title) && !c.does(title) {
			name = title
		}
	}
	if name == "" {
		name = c.kind
	}
	if plain := plain(name); plain != "" {
		return ownPrefix + plain[:min(len(plain), maxOwnName)]
	}
	return ownPrefix + "tool"
}

// does tells whether a title says what the call does, and not what the tool is called:
// agents show the command, or the file, and one word of a command looks like a name. Of
// what is executed nothing but the command may be known.
func (c *call) does(title string) bool {
	input := c.arguments()
	if input == nil {
		return c.kind == kindExecute
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(input, &members) != nil {
		return false
	}
	for _, raw := range members {
		var words []string
		if word := stringOf(raw); word != "" {
			words = []string{word}
		} else if json.Unmarshal(raw, &words) != nil {
			continue
		}
		if slices.Contains(words, title) {
			return true
		}
	}
	return false
}

// named tells whether the agent has said what tool it calls.
func (c *call) named() bool {
	return c.name != "" || c.title != "" || stamped.MatchString(c.key)
}

// plain is the common form of names: small letters and digits, and every run of
// other characters one underscore.
func plain(s string) string {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "_")
}

// catalogue finds the offered tool that an agent means.
type catalogue struct {
	byPlain map[string]*offeredTool
}

type offeredTool struct {
	harness.Tool

	properties map[string]bool
	open       bool // the schema does not list its properties
}

func newCatalogue(tools []harness.Tool) catalogue {
	c := catalogue{byPlain: make(map[string]*offeredTool, len(tools))}
	for _, t := range tools {
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		o := &offeredTool{Tool: t, properties: map[string]bool{}}
		if json.Unmarshal(t.InputSchema, &schema) != nil || schema.Properties == nil {
			o.open = true
		}
		for name := range schema.Properties {
			o.properties[name] = true
		}
		c.byPlain[plain(t.OfferedName)] = o
	}
	return c
}

// find gives the offered tool of a call, or nil for one of the agent's own. A name
// alone does not decide: a model writes titles too, and a shell command that is
// called like an offered tool has to stay a shell command. So the name has to be
// exactly one that agents make of the server's and the tool's, and what is known
// of the arguments has to be the tool's.
func (cat catalogue) find(c *call) *offeredTool {
	candidates := []string{c.name}
	if c.name == "" {
		candidates = []string{c.first, c.title}
		if m := stamped.FindStringSubmatch(c.key); m != nil {
			candidates = append(candidates, m[1])
		}
	}
	for _, name := range candidates {
		if t := cat.named(name); t != nil && t.fits(c) {
			return t
		}
	}
	return nil
}

// named undoes what agents do to names.
func (cat catalogue) named(name string) *offeredTool {
	p := plain(name)
	for _, prefix := range []string{"mcp_" + loopback.Name + "_", "tool_" + loopback.Name + "_", loopback.Name + "_"} {
		rest, ok := strings.CutPrefix(p, prefix)
		if !ok {
			continue
		}
		if t := cat.byPlain[rest]; t != nil {
			return t
		}
		if m := marked.FindStringSubmatch(rest); m != nil {
			return cat.byPlain[m[1]]
		}
	}
	if rest, ok := strings.CutSuffix(p, "_"+loopback.Name+"_mcp_server"); ok {
		return cat.byPlain[rest]
	}
	return nil
}

// fits tells whether the call's arguments can be the tool's. Where the agent shows
// none, at least it must not say that it runs or edits something.
func (t *offeredTool) fits(c *call) bool {
	input := c.arguments()
	if input == nil {
		return c.kind == "" || c.kind == "other" || c.kind == "think"
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(input, &members) != nil {
		return false
	}
	if t.open {
		return c.kind != kindExecute && c.kind != "edit" && c.kind != "delete" && c.kind != "move"
	}
	for name := range members {
		if !t.properties[name] {
			return false
		}
	}
	return true
}

// arguments of the call, without what some agents put around them; nil where
// there are none.
func (c *call) arguments() json.RawMessage {
	if len(c.input) == 0 || string(c.input) == "null" {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(c.input, &members) != nil || len(members) == 0 {
		return nil
	}
	inner, wrapped := members["arguments"]
	if _, server := members["server"]; wrapped && server {
		return inner
	}
	return c.input
}
