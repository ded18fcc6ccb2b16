package scale_test

import (
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/scale"
	"cofferdam.dev/tests/stack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Fifty conversations at once; `make scale BINDINGS=1000` is the full size.
func TestManyConversations(t *testing.T) {
	r, err := scale.Run(t.Context(), scale.Config{
		Command: stack.Need(t), Folder: t.TempDir(), Bindings: 50, Claims: 5, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if err := r.Verdict(); err != nil {
		t.Error(err)
	}
}
