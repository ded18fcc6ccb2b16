//go:build linux

package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

// Files are the program's, with the modes that were asked for.
func TestWriteFile(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		put(t, w, hosted.File{Path: hosted.Home + "/.config/a/b"}, "old")
		put(t, w, hosted.File{Path: hosted.Home + "/.config/a/b"}, "new")
		put(t, w, hosted.File{Path: hosted.Workspace + "/run", Executable: true}, "#!/bin/sh\necho runs\n")
		if got := output(t, w, `cat "$HOME/.config/a/b"; ./run; cd "$HOME/.config/a" && echo x >> b && rm b && touch c && ls -A`); got != "newruns\nc\n" {
			t.Errorf("%q", got)
		}
		for _, path := range []string{"", "relative", "/", hosted.Home, hosted.Home + "/", hosted.Home + "/..", hosted.Workspace + "/../etc/x", "/etc/x", hosted.Home + "dir-evil/x", hosted.Temp + "/x", hosted.Home + "/a\x00b"} {
			if err := w.WriteFile(t.Context(), hosted.File{Path: path}, strings.NewReader("x")); !fault.Is(err, fault.InvalidRequest) {
				t.Errorf("%q: %v", path, err)
			}
		}
		wantCode(t, w.WriteFile(t.Context(), hosted.File{Path: hosted.Home + "/.config"}, strings.NewReader("x")), fault.InvalidRequest)
	})
}

// No link of the program's leads what is written for it anywhere else.
func TestWriteFileFollowsNoLinkOut(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t)
	w := s.Dial(t)
	outside := filepath.Join(filepath.Dir(s.Home), "outside")
	must(t, os.Mkdir(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "f"), []byte("mine"), 0o600))
	output(t, w, `cd "$HOME"; ln -s ../outside rel; ln -s "`+outside+`" abs; ln -s ../outside/f file; ln -s . self; mkdir in; ln -s in inner; ln -s ../workspace ws`)
	for _, readOnly := range []bool{false, true} {
		for _, name := range []string{"rel/f", "abs/f", "rel/deep/f", "ws/f", "in/../../outside/f"} {
			err := w.WriteFile(t.Context(), hosted.File{Path: hosted.Home + "/" + name, ReadOnly: readOnly}, strings.NewReader("theirs"))
			if err == nil && !strings.HasPrefix(name, "in/") {
				t.Errorf("%s: written", name)
			}
		}
		// A link that has the file's own name is replaced.
		put(t, w, hosted.File{Path: hosted.Home + "/file", ReadOnly: readOnly}, "new")
	}
	wantCode(t, w.WriteFile(t.Context(), hosted.File{Path: hosted.Home + "/inner/f", ReadOnly: true}, strings.NewReader("x")), fault.AccessDenied)
	b, err := os.ReadFile(filepath.Join(outside, "f"))
	if names, _ := os.ReadDir(outside); err != nil || string(b) != "mine" || len(names) != 1 {
		t.Errorf("outside: %q, %v, %v", b, names, err)
	}
	if names, _ := os.ReadDir(s.Workspace); len(names) > 0 {
		t.Errorf("workspace: %v", names)
	}
}

// What is read-only stays what and where it is, whatever the program does.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		apart(t, w)
		output(t, w, `mkdir -p "$HOME/mine/deep" && touch "$HOME/mine/deep/theirs"`)
		put(t, w, hosted.File{Path: hosted.Home + "/skills/one/SKILL.md", ReadOnly: true}, "keep")
		put(t, w, hosted.File{Path: hosted.Home + "/mine/deep/keep", ReadOnly: true}, "keep")
		put(t, w, hosted.File{Path: hosted.Workspace + "/given/tool", ReadOnly: true, Executable: true}, "#!/bin/sh\necho keep\n")
		attack := `exec 2>/dev/null
cd "$HOME"
for f in skills/one/SKILL.md mine/deep/keep; do
	echo changed > $f; echo changed >> $f; chmod 666 $f; truncate -s 0 $f; rm -f $f; mv $f $f.moved
	echo changed > new; mv -f new $f; ln -sf /etc/passwd $f; ln $f hard && echo changed > hard
done
for d in skills/one skills mine/deep mine "$HOME"; do
	chmod 777 $d; mv $d $d.moved; mv $d "$TMPDIR/"; rm -rf $d; rmdir $d; ln -sfn /etc $d
done
cd "$OLDPWD"; echo changed > given/tool; mv given/tool moved; mv given/tool given/moved; rm -rf given; chmod 777 given
cat "$HOME/skills/one/SKILL.md" "$HOME/mine/deep/keep"; given/tool`
		if got := output(t, w, attack); got != "keepkeepkeep\n" {
			t.Errorf("%q", got)
		}
		if got := output(t, w, `cd "$HOME"; touch skills/one/beside mine/deep/beside new && rm skills/one/beside mine/deep/beside new && echo can work; touch x && cd "$OLDPWD" && touch x && echo here too`); got != "can work\nhere too\n" {
			t.Errorf("%q", got)
		}
		wantCode(t, w.WriteFile(t.Context(), hosted.File{Path: hosted.Home + "/mine/deep/keep"}, strings.NewReader("x")), fault.AccessDenied)
		put(t, w, hosted.File{Path: hosted.Home + "/mine/deep/keep", ReadOnly: true}, "the worker may")
		put(t, w, hosted.File{Path: hosted.Home + "/skills/one/plain"}, "beside")
		if got := output(t, w, `cat "$HOME/mine/deep/keep"; echo x > "$HOME/skills/one/plain" && echo writable`); got != "the worker maywritable\n" {
			t.Errorf("%q", got)
		}
		// An archive does not bring it out, and none brings anything over it.
		b, err := pack(t, w, "mine", "skills")
		must(t, err)
		must(t, w.Reset(t.Context()))
		must(t, w.Restore(t.Context(), strings.NewReader(string(b))))
		if got := output(t, w, `cd "$HOME" && find . -type f | LC_ALL=C sort; touch mine/deep/y && rm -r mine && echo mine again`); !strings.HasSuffix(got, "./skills/one/plain\nmine again\n") || strings.Contains(got, "keep") {
			t.Errorf("%q", got)
		}
	})
}

// The workspace stays the program's, whatever is given to it there: tools refuse to
// work in a folder of somebody else. It can move away what was given as a whole, and
// what comes next stands in its place again.
func TestTheWorkspaceIsThePrograms(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		apart(t, w)
		skill := hosted.File{Path: hosted.Workspace + "/skills/one/SKILL.md", ReadOnly: true}
		put(t, w, skill, "given")
		const look = `[ "$(stat -c %u .)" = "$(id -u)" ] && chmod 750 . && [ "$(stat -c %u skills)" != "$(id -u)" ] && cat skills/one/SKILL.md`
		if got := output(t, w, look); got != "given" {
			t.Errorf("%q", got)
		}
		for name, change := range map[string]string{
			"moved away": `mv skills old`,
			"a folder":   `mv skills older && mkdir -p skills/one && echo mine > skills/one/SKILL.md`,
			"a link":     `mv skills oldest && ln -s /etc skills`,
			"a file":     `mv skills other && echo mine > skills`,
		} {
			output(t, w, change)
			put(t, w, skill, name)
			if got := output(t, w, look); got != name {
				t.Errorf("%s: %q", name, got)
			}
		}
	})
}

// A restored file does not take the place of a read-only one.
func TestRestoreKeepsReadOnly(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		apart(t, w)
		output(t, w, `mkdir -p "$HOME/d" && echo old > "$HOME/d/config" && echo state > "$HOME/d/state"`)
		b, err := pack(t, w, "d")
		must(t, err)
		must(t, w.Reset(t.Context()))
		put(t, w, hosted.File{Path: hosted.Home + "/d/config", ReadOnly: true}, "new\n")
		must(t, w.Restore(t.Context(), strings.NewReader(string(b))))
		if got := output(t, w, `cat "$HOME/d/config" "$HOME/d/state"`); got != "new\nstate\n" {
			t.Errorf("%q", got)
		}
	})
}

// A full disk is a limit of the sandbox, and nothing is left of what had no room.
func TestStorageLimit(t *testing.T) {
	t.Parallel()
	nested(t)
	s := runnertest.StartNested(t)
	w := s.Dial(t)
	p := begin(t, w, shell("cat /dev/zero > fill"))
	if e := ended(t, p); e.Limit != "storage" || e.Code == 0 {
		t.Errorf("exit %+v", e)
	}
	err := w.WriteFile(t.Context(), hosted.File{Path: hosted.Workspace + "/more"}, strings.NewReader(strings.Repeat("x", 1<<20)))
	wantCode(t, err, fault.SandboxLimit)
	if got := output(t, w, "ls -A; rm fill"); got != "fill\n" {
		t.Errorf("%q", got)
	}
	put(t, w, hosted.File{Path: hosted.Workspace + "/more"}, "x")
	hit, err := w.Limits(t.Context())
	if must(t, err); strings.Join(hit, " ") != "storage" {
		t.Errorf("limits %v", hit)
	}
}
