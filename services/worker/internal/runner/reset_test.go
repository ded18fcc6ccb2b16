//go:build linux

package runner_test

import (
	"strings"
	"testing"

	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

// fillWorld puts files of the worker and of the program everywhere, and leaves a
// program that would go on writing them.
func fillWorld(t testing.TB, w *runnerclient.World) hosted.Program {
	t.Helper()
	put(t, w, hosted.File{Path: hosted.Home + "/given/config", ReadOnly: true}, "the worker's")
	put(t, w, hosted.File{Path: hosted.Workspace + "/given/input", ReadOnly: true}, "the worker's")
	put(t, w, hosted.File{Path: hosted.Workspace + "/given/tool", ReadOnly: true, Executable: true}, "#!/bin/sh\necho works\n")
	p := begin(t, w, shell(`mkdir -p "$HOME/.agent/deep" own && echo state > "$HOME/.agent/deep/state" && echo x > "$TMPDIR/x" && echo result > own/result && chmod 000 "$HOME/.agent/deep" || exit
setsid sh -c 'while :; do echo more >> "$HOME/more"; done' & until [ -s "$HOME/more" ]; do :; done; echo ready; exec sleep 600`))
	line(t, p)
	return p
}

// listing is what stands below the program's folders, with the workspace's content.
const listing = `cd / && find "$HOME" "$TMPDIR" -mindepth 1; cd "$OLDPWD" && find . -type f | LC_ALL=C sort; cat given/input own/result 2>/dev/null`

// ResetHome leaves nothing of a program but what stands in the workspace, and that as
// it was.
func TestResetHome(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		p := fillWorld(t, w)
		must(t, w.ResetHome(t.Context()))
		select {
		case <-p.Done():
		default:
			t.Error("the program is not done")
		}
		if left := processes(t, s); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
		if got := output(t, w, listing); got != "./given/input\n./given/tool\n./own/result\nthe worker'sresult\n" {
			t.Errorf("%q", got)
		}
		if got := output(t, w, `given/tool; touch "$HOME/x" "$TMPDIR/x" x own/y && echo writable`); got != "works\nwritable\n" {
			t.Errorf("%q", got)
		}
		if w.About().OwnUser {
			if got := output(t, w, `exec 2>&1; echo y > given/input; rm -f given/input; chmod u+w given/input; cat given/input`); !strings.HasSuffix(got, "the worker's") {
				t.Errorf("what was read-only is not any more: %q", got)
			}
		}
		must(t, w.ResetHome(t.Context())) // of what is empty
	})
}

// Reset leaves nothing.
func TestReset(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *runnertest.Stand, w *runnerclient.World) {
		fillWorld(t, w)
		must(t, w.Reset(t.Context()))
		if left := processes(t, s); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
		if got := output(t, w, listing); got != "" {
			t.Errorf("%q", got)
		}
	})
}
