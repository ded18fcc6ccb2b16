//go:build linux

package runner_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/services/worker/internal/hosted"
	"cofferdam.dev/services/worker/internal/runner/runnertest"
	"cofferdam.dev/services/worker/internal/runnerclient"
)

func itoa(n int) string { return strconv.Itoa(n) }

func pack(t testing.TB, w hosted.World, include ...string) ([]byte, error) {
	t.Helper()
	var b bytes.Buffer
	err := w.Archive(t.Context(), hosted.Paths{Include: include}, 4<<20, &b)
	return b.Bytes(), err
}

// What one world archives another one has, with modes, times, links and names of
// any kind, in the program's hands.
func TestArchiveRoundTrip(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		shut := "000"
		if !w.About().OwnUser {
			shut = "400" // what a user has closed to himself he cannot read
		}
		output(t, w, `cd "$HOME" && mkdir -p state/deep/er state/closed other && umask 022 &&
printf one > state/one && printf two > state/deep/er/two && chmod 600 state/one && chmod 755 state/deep/er/two &&
ln -s ../one state/deep/link && ln -s /etc/passwd state/out && ln state/one state/hard && mkfifo state/pipe &&
printf odd > "state/$(printf 'n\377\n')" && printf shut > state/closed/shut && chmod `+shut+` state/closed/shut && chmod 500 state/closed &&
printf no > other/no && printf log > state/x.log && touch -d '2020-01-02T03:04:05Z' state/one state/deep`)
		put(t, w, hosted.File{Path: hosted.Home + "/state/given", ReadOnly: true}, "the worker's")
		var first, second bytes.Buffer
		paths := hosted.Paths{Include: []string{"state", "missing*"}, Exclude: []string{"state/*.log"}}
		must(t, w.Archive(t.Context(), paths, 1<<20, &first))
		must(t, w.Archive(t.Context(), paths, 1<<20, &second))
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Error("the same files make different archives")
		}
		look := `cd "$HOME" && find . -mindepth 1 ! -name given | LC_ALL=C sort | while IFS= read -r f; do [ -d "$f" ] && s=0 || s=$(stat -c %s "$f" 2>/dev/null); [ -L "$f" ] && echo "$f" || stat -c "%n %A %Y $s" "$f" 2>/dev/null; done; cat state/one state/deep/link state/hard; readlink state/out; cat state/n*`
		output(t, w, `rm -r "$HOME"/other "$HOME"/state/x.log "$HOME"/state/pipe`)
		must(t, w.Archive(t.Context(), paths, 1<<20, io.Discard))
		before := output(t, w, look)

		must(t, w.Reset(t.Context()))
		must(t, w.Restore(t.Context(), bytes.NewReader(first.Bytes())))
		after := output(t, w, look)
		if trimTop(before) != trimTop(after) || !strings.Contains(after, "oneoneone/etc/passwd\nodd") {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if w.About().OwnUser {
			if got := output(t, w, `ls "$HOME/state/given" 2>/dev/null; find "$HOME" ! -user 1000`); got != "" {
				t.Errorf("not the program's: %s", got)
			}
		}
		must(t, w.Restore(t.Context(), bytes.NewReader(first.Bytes()))) // over what is there
		if again := output(t, w, look); again != after {
			t.Errorf("again:\n%s", again)
		}
	})
}

// trimTop leaves out the time of the archived folder itself, in which files were
// removed meanwhile.
func trimTop(listing string) string {
	_, rest, _ := strings.Cut(listing, "\n")
	return rest
}

// A store with a log beside it, as SQLite has, is archived at one point in time:
// frozen, archived and restored, it is always whole.
func TestArchiveOfALiveStore(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		// The log is always one ahead of the store or even with it.
		store := `mkdir -p "$HOME/db"; cd "$HOME/db"; i=0; echo ready; while :; do i=$((i+1)); echo $i > log; echo $i > store; done`
		check := `cd "$HOME/db"; l=$(cat log); s=$(cat store); [ "${l:-0}" -ge 0 ] && echo "$l ${s:-0}"`
		for range 10 {
			must(t, w.Reset(t.Context()))
			p := begin(t, w, shell(store))
			line(t, p)
			_, err := pack(t, w, "db")
			wantCode(t, err, fault.Protocol)
			must(t, w.Freeze(t.Context()))
			var b bytes.Buffer
			must(t, w.Archive(t.Context(), hosted.Paths{Include: []string{"db"}}, 1<<20, &b))
			must(t, w.Thaw(t.Context()))
			must(t, w.KillAll(t.Context(), 0))
			must(t, w.Reset(t.Context()))
			must(t, w.Restore(t.Context(), &b))
			got := strings.Fields(output(t, w, check))
			if len(got) < 2 {
				continue // caught between truncation and content, which the store can be at any time
			}
			l, err1 := strconv.Atoi(got[0])
			s, err2 := strconv.Atoi(got[1])
			must(t, errors.Join(err1, err2))
			if s != 0 && l != s && l != s+1 {
				t.Fatalf("log %d, store %d: of two points in time", l, s)
			}
		}
	})
}

// Bounds of what is archived.
func TestArchiveBounds(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		output(t, w, `cd "$HOME" && mkdir large deep sparse && head -c 3000000 /dev/urandom > large/f && truncate -s 1T sparse/f
d=deep; i=0; while [ $i -lt 200 ]; do d=$d/d; i=$((i+1)); done; mkdir -p $d`)
		for _, include := range []string{"sparse", "deep"} {
			_, err := pack(t, w, include)
			wantCode(t, err, fault.StateTooLarge)
		}
		err := w.Archive(t.Context(), hosted.Paths{Include: []string{"large"}}, 1<<20, io.Discard)
		wantCode(t, err, fault.StateTooLarge)
		wantCode(t, w.Archive(t.Context(), hosted.Paths{Include: []string{"large"}}, 0, io.Discard), fault.InvalidRequest)
		for _, bad := range []string{"[", "/etc", "../x", "a/../..", "", ".", "a//b"} {
			_, err := pack(t, w, bad)
			wantCode(t, err, fault.HarnessOptionsInvalid)
		}
		b, err := pack(t, w, "*") // but for what is too large
		if err == nil {
			t.Errorf("%d bytes", len(b))
		}
		must(t, w.Reset(t.Context())) // of any depth
		b, err = pack(t, w, "*")
		must(t, err)
		must(t, w.Restore(t.Context(), bytes.NewReader(b))) // nothing is something
	})
}

// Errors of the caller's own reader and writer come back as they are, and leave
// the world usable.
func TestTransferErrors(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, _ *runnertest.Stand, w *runnerclient.World) {
		own := fault.New(fault.HandleExpired, "test")
		err := w.WriteFile(t.Context(), hosted.File{Path: hosted.Home + "/half"}, io.MultiReader(strings.NewReader("half"), failing{own}))
		wantCode(t, err, fault.HandleExpired)
		if got := output(t, w, `ls -A "$HOME"`); got != "" {
			t.Errorf("half a file is left: %s", got)
		}
		put(t, w, hosted.File{Path: hosted.Home + "/whole"}, "whole")
		wantCode(t, w.Archive(t.Context(), hosted.Paths{Include: []string{"whole"}}, 1<<20, failing{own}), fault.HandleExpired)
		wantCode(t, w.Restore(t.Context(), failing{own}), fault.HandleExpired)
		wantCode(t, w.Restore(t.Context(), strings.NewReader("no archive")), fault.Protocol)
		if got := output(t, w, `cat "$HOME/whole"`); got != "whole" {
			t.Errorf("%q", got)
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// What stands in an archive stays in Home.
func TestRestoreStaysInHome(t *testing.T) {
	t.Parallel()
	s := runnertest.Start(t)
	w := s.Dial(t)
	outside := filepath.Join(filepath.Dir(s.Home), "outside")
	must(t, os.Mkdir(outside, 0o777))
	must(t, os.Chmod(outside, 0o777))
	for name, entries := range map[string][]tar.Header{
		"by a link":          {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "out/f", Typeflag: tar.TypeReg}},
		"by a relative link": {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "out/f", Typeflag: tar.TypeReg}},
		"folder by a link":   {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "out/f/", Typeflag: tar.TypeDir}},
		"through a file":     {{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside + "/f"}, {Name: "out", Typeflag: tar.TypeReg}},
	} {
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b)
		must(t, err)
		tw := tar.NewWriter(z)
		for _, h := range entries {
			must(t, tw.WriteHeader(&h))
		}
		must(t, errors.Join(tw.Close(), z.Close()))
		err = w.Restore(t.Context(), &b)
		if name != "through a file" && err == nil {
			t.Errorf("%s: taken", name)
		}
		if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
			t.Fatalf("%s: %v %v", name, names, err)
		}
		must(t, w.Reset(t.Context()))
	}
}
