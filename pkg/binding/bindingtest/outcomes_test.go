package bindingtest

import (
	"testing"
	"testing/synctest"
)

// TestEveryLostAnswer loses each answer of a whole life in turn; the suite loses
// some of them, because real back ends take their time.
func TestEveryLostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { newWorld(t, Watch(t, NewMemory())).lostAnswers(1) })
}
