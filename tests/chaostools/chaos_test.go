package chaostools_test

import (
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/chaostools"
	"cofferdam.dev/tests/stack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A hundred calls; `make chaos-tools CALLS=1000` is the full size.
func TestACallHappensOnceWhateverIsKilled(t *testing.T) {
	r, err := chaostools.Run(t.Context(), chaostools.Config{Command: stack.Need(t), Folder: t.TempDir(), Calls: 100, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *r)
	if err := r.Verdict(); err != nil {
		t.Error(err)
	}
}
