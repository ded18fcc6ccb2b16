package demomodel

import (
	"encoding/json"
	"slices"
)

// shells are the names that agents give their shell tool, and the argument that
// takes the command. Where several are offered the first of them is meant.
var shells = []struct {
	name, command string
	list          bool // the argument is a list of commands
}{
	{name: "bash", command: "command"},                      // opencode, kilo, copilot, pi; "Bash" of claude
	{name: "run_shell_command", command: "command"},         // gemini, qwen
	{name: "exec_command", command: "cmd"},                  // codex
	{name: "run_commands", command: "commands", list: true}, // cline
	{name: "shell_command", command: "command"},
	{name: "shell", command: "command"},
}

// shell finds the shell tool among the offers and gives the arguments that make
// it run a command: the command, a description where the tool has one, and false
// for whatever flag it insists on.
func shell(offers []offer, command string) (o offer, args string, ok bool) {
	for _, s := range shells {
		i := slices.IndexFunc(offers, func(o offer) bool { return o.namespace == "" && plain(o.name) == s.name })
		if i < 0 {
			continue
		}
		o := offers[i]
		values := map[string]any{s.command: command}
		if s.list {
			values[s.command] = []string{command}
		}
		if _, takes := o.properties["description"]; takes {
			values["description"] = "Runs the command of the message"
		}
		for _, name := range o.required {
			if _, given := values[name]; !given && o.properties[name].Type == "boolean" {
				values[name] = false
			}
		}
		data, err := json.Marshal(values)
		return o, string(data), err == nil
	}
	return offer{}, "", false
}
