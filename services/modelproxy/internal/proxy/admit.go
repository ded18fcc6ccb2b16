package proxy

import (
	"encoding/json"
	"regexp"
	"slices"

	"cofferdam.dev/pkg/fault"
)

// admission is what an alias allows.
type admission struct {
	further map[string]bool // fields that go on beside those of the wire
	drop    bool            // what does not go on is taken out
}

// rules are those of a wire.
type rules struct {
	// passed are the fields that only shape an answer. What is missing here makes
	// an endpoint act: search, fetch, store, speak, fall back to other models. An
	// alias can allow more ([Alias.Fields]).
	passed map[string]bool
	// ignored are fields about the client and not the call. They are taken out.
	ignored map[string]bool
	// stored are fields that name what the endpoint keeps, under a key that others
	// use too. Without it a request means something else, so they are refused.
	stored []string
	// own tells a tool that the sandbox runs.
	own func(tool object) bool
	// check looks at the rest, and shape says which texts there are in it.
	check func(r *request, a admission) error
	shape shape
}

func (w Wire) rules() rules {
	switch w {
	case OpenAIEmbeddings:
		return embeddingsRules()
	case OpenAIResponses:
		return responsesRules()
	case AnthropicMessages:
		return messagesRules()
	case Gemini:
		return geminiRules()
	default:
		return chatRules()
	}
}

func set(names ...string) map[string]bool {
	all := make(map[string]bool, len(names))
	for _, n := range names {
		all[n] = true
	}
	return all
}

// fieldName is what a field has to look like to be named in an error.
var fieldName = regexp.MustCompile(`^[a-z][a-zA-Z0-9_]{0,63}$`)

// admit checks that the request asks for an answer and for nothing beyond it, and
// finds out which model it names and whether it streams.
func (r *request) admit(a admission) error {
	w := r.to.wire.rules()
	if err := r.trim(w, a); err != nil {
		return err
	}
	if r.to.wire != Gemini {
		if json.Unmarshal(r.fields["model"], &r.model) != nil || r.model == "" {
			return invalid("model: a name")
		}
		if err := r.flag("stream", &r.stream); err != nil {
			return err
		}
	}
	if r.to.count {
		r.stream = false
	}
	if err := r.checkTools(w, a); err != nil {
		return err
	}
	if err := w.check(r, a); err != nil {
		return err
	}
	return r.checkLeaves(w.shape, a)
}

// trim takes out what does not go on, or refuses it.
func (r *request) trim(w rules, a admission) error {
	for _, name := range w.stored {
		if raw, ok := r.fields[name]; ok && !a.further[name] {
			if string(raw) != "null" {
				return invalid(name + ": send the whole conversation instead")
			}
			delete(r.fields, name)
		}
	}
	for name := range r.fields {
		switch {
		case a.further[name], w.passed[name]:
		case a.drop, w.ignored[name]:
			delete(r.fields, name)
		case fieldName.MatchString(name):
			return invalid(name + ": not a field that this alias passes on")
		default:
			return invalid("body: has a field that this alias does not pass on")
		}
	}
	return nil
}

// flag reads a field that is a boolean, null or absent.
func (r *request) flag(name string, to *bool) error {
	raw, ok := r.fields[name]
	if ok && json.Unmarshal(raw, to) != nil {
		return invalid(name + ": a boolean")
	}
	return nil
}

// checkTools refuses tools that the endpoint would run by itself, or takes them
// out. The choice of one that is gone goes with it.
func (r *request) checkTools(w rules, a admission) error {
	raw, ok := r.fields["tools"]
	if !ok || a.further["tools"] {
		return nil
	}
	kept, err := ownTools(raw, w.own, a)
	if err != nil {
		return err
	}
	r.fields["tools"] = kept
	if a.drop && string(kept) == "[]" {
		for _, name := range []string{"tools", "tool_choice", "toolConfig", "tool_config", "parallel_tool_calls"} {
			delete(r.fields, name)
		}
	}
	return nil
}

// ownTools is a list of tools without those of the endpoint.
func ownTools(raw json.RawMessage, own func(object) bool, a admission) (json.RawMessage, error) {
	var tools []object
	if json.Unmarshal(raw, &tools) != nil {
		return nil, invalid("tools: a list of tools")
	}
	kept := slices.DeleteFunc(slices.Clone(tools), func(t object) bool { return t.hasVariant() || !own(t) })
	switch {
	case len(kept) == len(tools):
		return raw, nil
	case !a.drop:
		return nil, invalid("tools: only functions, which ToolBroker carries out")
	case len(kept) == 0:
		return json.RawMessage("[]"), nil
	default:
		return encode(kept)
	}
}

// object is a JSON object by its exact keys. A struct would take keys of
// another case for its own, and so read something else than the endpoint does.
type object map[string]json.RawMessage

// text is the string under key, or "" where there is none.
func (o object) text(key string) (text string) {
	if json.Unmarshal(o[key], &text) != nil {
		return ""
	}
	return text
}

// only reports whether o has no other keys.
func (o object) only(keys ...string) bool {
	for key := range o {
		if !slices.Contains(keys, key) {
			return false
		}
	}
	return true
}

// hasVariant reports whether o has its type in another case too.
func (o object) hasVariant() bool {
	for key := range o {
		if isVariant(key) {
			return true
		}
	}
	return false
}

// refuseStore lets a request ask the endpoint to keep it only where the alias
// says so.
func (r *request) refuseStore(a admission) error {
	var store bool
	if err := r.flag("store", &store); err != nil {
		return err
	}
	switch {
	case !store || a.further["store"]:
		return nil
	case a.drop:
		r.fields["store"] = json.RawMessage("false")
		return nil
	default:
		return fault.New(fault.InvalidRequest, "proxy.request", fault.Detail("store: false"))
	}
}
