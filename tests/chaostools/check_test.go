package chaostools

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Each lie is found: by what is wrong with the one call, and by the history where
// it is one of order.
func TestLiesAreFound(t *testing.T) {
	begun := time.Unix(1_000_000, 0)
	at := func(second int) time.Time { return begun.Add(time.Duration(second) * time.Second) }
	once := []time.Time{at(2)}
	for name, row := range map[string]struct {
		call    call
		wrong   bool
		ordered porcupine.CheckResult
	}{
		"concluded":                         {call{rows: []string{rowConcluded}, effects: once, sideEffects: "known"}, false, porcupine.Ok},
		"outcome unknown, happened":         {call{rows: []string{rowDispatched}, effects: once, sideEffects: "possible"}, false, porcupine.Ok},
		"outcome unknown, never happened":   {call{rows: []string{rowDispatched}, sideEffects: "possible"}, false, porcupine.Ok},
		"revoked":                           {call{rows: []string{rowRevoked}, sideEffects: "none"}, false, porcupine.Ok},
		"never asked for":                   {call{sideEffects: "none"}, false, porcupine.Ok},
		"tried again":                       {call{rows: []string{rowNotDispatched, rowConcluded}, effects: once, sideEffects: "known"}, false, porcupine.Ok},
		"twice":                             {call{rows: []string{rowConcluded}, effects: []time.Time{at(2), at(3)}}, true, porcupine.Illegal},
		"concluded, and nothing happened":   {call{rows: []string{rowConcluded}}, true, porcupine.Illegal},
		"revoked, and happened":             {call{rows: []string{rowRevoked}, effects: once}, true, porcupine.Illegal},
		"happened after it was revoked":     {call{rows: []string{rowRevoked}, effects: []time.Time{at(9)}}, true, porcupine.Illegal},
		"happened without a row":            {call{effects: once}, true, porcupine.Illegal},
		"tried again, nobody knows whether": {call{rows: []string{rowDispatched, rowConcluded}, effects: once}, true, porcupine.Ok},
		"an effect that is denied":          {call{rows: []string{rowConcluded}, effects: once, sideEffects: "none"}, true, porcupine.Ok},
		"an effect that is made up":         {call{rows: []string{rowDispatched}, sideEffects: "known"}, true, porcupine.Ok},
		"a state that there is not":         {call{rows: []string{"admitted"}}, true, porcupine.Ok},
	} {
		c := row.call
		c.key, c.asked, c.ended = "k", at(1), at(5)
		if wrong := c.wrong(); (len(wrong) > 0) != row.wrong {
			t.Errorf("%s: %q", name, wrong)
		}
		if got := linearizable([]*call{&c}, begun, at(10)); got != row.ordered {
			t.Errorf("%s: %v", name, got)
		}
	}
}
