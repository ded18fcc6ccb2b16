package chat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"cofferdam.dev/pkg/event"
)

// maxShown is how much of a call's arguments is shown to whom decides on it: all that a
// person can judge, and more than that is said to be cut.
const maxShown = 16 << 10

// ask puts a question to the user until the answer fits it. It is false where the input
// ends first: the question stays open then.
func (c Config) ask(i event.InterruptRequested) (d event.ResumeDecision, answered bool) {
	for {
		if i.InterruptType == event.InterruptToolApproval {
			d.Tools, answered = c.askCalls(i.ToolApprovals)
		} else {
			d, answered = c.askForm(i)
		}
		if !answered {
			return event.ResumeDecision{}, false
		}
		normal, err := d.Normal(i)
		if err == nil {
			return normal, true
		}
		tell(c.People, "[that does not fit: %s; once more]\n", clean(err.Error()))
	}
}

func (c Config) askCalls(calls []event.ToolApproval) (out []event.ToolDecision, answered bool) {
	for _, call := range calls {
		tell(c.People, "[may the agent call %s?]\n%s\n", clean(call.ToolName), cut(clean(string(call.ToolArgs))))
		d := event.ToolDecision{ToolCallID: call.ToolCallID}
		if d.Decision, answered = c.decide(call.AllowedDecisions); !answered {
			return nil, false
		}
		if d.Decision == event.DecisionEdit {
			tell(c.People, "the arguments instead, one line of JSON: ")
			line, ok := c.line()
			if !ok {
				return nil, false
			}
			d.Arguments = event.Object(line)
		}
		out = append(out, d)
	}
	return out, true
}

// decide reads one of the decisions that are allowed, or a beginning of it.
func (c Config) decide(allowed []event.Decision) (event.Decision, bool) {
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	for {
		tell(c.People, "%s: ", strings.Join(words, ", "))
		line, ok := c.line()
		if !ok {
			return "", false
		}
		if line = strings.ToLower(line); line == "" {
			continue
		}
		for _, w := range words { // no two begin alike
			if strings.HasPrefix(w, line) {
				return event.Decision(w), true
			}
		}
	}
}

// askForm reads a value for each field. A field that is left empty is not given.
func (c Config) askForm(i event.InterruptRequested) (event.ResumeDecision, bool) {
	tell(c.People, "[the agent asks]\n%s\n", clean(i.Prompt))
	values := map[string]any{}
	for _, f := range i.Fields {
		tell(c.People, "%s: ", describe(f))
		line, ok := c.line()
		switch {
		case !ok:
			return event.ResumeDecision{}, false
		case line != "":
			values[f.FieldName] = valueOf(f, line)
		case f.DefaultValue != "":
			values[f.FieldName] = json.RawMessage(f.DefaultValue)
		}
	}
	form, err := json.Marshal(values)
	// It fails for a default value that is no JSON, which no interrupt has; and nothing is
	// decided for the user then.
	return event.ResumeDecision{Form: event.Object(form)}, err == nil
}

// describe is the line before a field.
func describe(f event.FormField) string {
	name := f.FieldLabel
	if name == "" {
		name = f.FieldName
	}
	notes := []string{}
	switch {
	case len(f.FieldValues) > 0:
		notes = append(notes, strings.Join(f.FieldValues, " | "))
	case f.FieldType != "text":
		notes = append(notes, f.FieldType)
	}
	if f.FieldDescription != "" {
		notes = append(notes, f.FieldDescription)
	}
	if f.DefaultValue != "" {
		notes = append(notes, "default "+string(f.DefaultValue))
	} else if !f.Required {
		notes = append(notes, "may be left out")
	}
	if len(notes) > 0 {
		name += " (" + strings.Join(notes, "; ") + ")"
	}
	return clean(name)
}

// valueOf is what a line means for a field.
func valueOf(f event.FormField, line string) any {
	if slices.Contains(f.FieldValues, line) {
		return line
	}
	switch f.FieldType {
	case "integer", "number":
		if json.Valid([]byte(line)) {
			return json.RawMessage(line)
		}
	case "boolean":
		if v, err := strconv.ParseBool(line); err == nil {
			return v
		}
		switch strings.ToLower(line) {
		case "yes", "y":
			return true
		case "no", "n":
			return false
		}
	}
	return line
}

// line reads one line of the input, without space around it.
func (c Config) line() (string, bool) {
	if !c.lines.Scan() {
		return "", false
	}
	return strings.TrimSpace(c.lines.Text()), true
}

func cut(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "\n[cut: these are the first " + strconv.Itoa(maxShown) + " bytes of " + strconv.Itoa(len(text)) + "]"
}
