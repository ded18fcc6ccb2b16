package chaosstate_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"cofferdam.dev/tests/chaosstate"
	"cofferdam.dev/tests/stack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Fifty kills; `make chaos-state KILLS=1000` is the full size.
func TestWhatIsSavedIsSavedWhateverIsKilled(t *testing.T) {
	const kills = 50
	command := stack.NeedFailpoints(t)
	folder, err := os.MkdirTemp("", "cofferdam-kill-") //nolint:usetesting // t.TempDir is too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	r, err := chaosstate.Run(t.Context(), chaosstate.Config{Command: command, Folder: folder, Kills: kills, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", *r)
	if err := r.Verdict(kills); err != nil {
		t.Error(err)
	}
}
