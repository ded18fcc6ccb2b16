package linearizability

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Check gives what no order explains, a part of the history each. A part that
// cannot be judged within the time is one of them.
func Check(history []Entry, limit time.Duration) []error {
	all := parts(history)
	var violations []error
	for _, key := range slices.Sorted(maps.Keys(all)) {
		m := ofBindings()
		if isMemory(key) {
			m = ofMemory()
		}
		result := porcupine.CheckOperationsTimeout(m, operations(all[key]), limit)
		if result != porcupine.Ok {
			violations = append(violations, fmt.Errorf("%s is %s:\n%s", key, result, describe(all[key])))
		}
	}
	return violations
}

func operations(part []Entry) []porcupine.Operation {
	out := make([]porcupine.Operation, len(part))
	for i, e := range part {
		out[i] = porcupine.Operation{ClientId: e.Client, Input: e.Op, Output: e.Outcome, Call: e.Call, Return: e.Return}
	}
	return out
}

func describe(part []Entry) string {
	lines := make([]string, len(part))
	for i, e := range slices.SortedFunc(slices.Values(part), func(a, b Entry) int { return int(a.Call - b.Call) }) {
		lines[i] = e.String()
	}
	return strings.Join(lines, "\n")
}
