package logfile

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func open(t *testing.T, most int64) *File {
	t.Helper()
	f, err := Open(filepath.Join(t.TempDir(), "x.log"), most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func write(t *testing.T, f *File, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if n, err := f.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write(%q): %d, %v", s, n, err)
		}
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestALogHasABound(t *testing.T) {
	f := open(t, 10)
	write(t, f, "12345678\n", "second\n", "third\n")
	if got := content(t, f.Path()); got != "third\n" {
		t.Errorf("new file: %q", got)
	}
	if got := content(t, f.Path()+oldSuffix); got != "second\n" {
		t.Errorf("old file: %q", got)
	}
	if info, err := os.Stat(f.Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestALogGoesOnAfterARestart(t *testing.T) {
	f := open(t, 0)
	write(t, f, "one\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(f.Path(), 0)
	if err != nil {
		t.Fatal(err)
	}
	write(t, again, "two\n")
	if got := content(t, again.Path()); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatCannotBeWrittenIsCounted(t *testing.T) {
	f := open(t, 0)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Path()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.Path(), 0o700); err != nil { // in the way
		t.Fatal(err)
	}
	write(t, f, "lost\n")
	if err := os.Remove(f.Path()); err != nil {
		t.Fatal(err)
	}
	write(t, f, "kept\n")
	if got, want := content(t, f.Path()), "(5 bytes of this log were lost)\nkept\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTheTapGetsWholeLines(t *testing.T) {
	f := open(t, 0)
	var lines []string
	f.Tap(func(l []byte) { lines = append(lines, string(l)) })
	write(t, f, "a", "b\nc\n\nd", strings.Repeat("x", 2*maxLine), "\nend")
	want := []string{"ab", "c", "", "d" + strings.Repeat("x", maxLine-1)}
	if !slices.Equal(lines, want) {
		t.Errorf("%d lines, want %d", len(lines), len(want))
	}
	f.Tap(nil)
	write(t, f, "\nunseen\n")
	if len(lines) != len(want) {
		t.Error("told after the tap was taken off")
	}
}

func TestNotesOfAStart(t *testing.T) {
	var warnings []string
	n := Notes{Warn: func(w string) { warnings = append(warnings, w) }}
	for _, l := range []string{
		`{"time":"2026-01-01T00:00:00Z","level":"INFO","msg":"serving","service":"x"}`,
		`{"time":"2026-01-01T00:00:00Z","level":"WARN","msg":"sandboxes are weak","service":"x","missing":"seccomp, Landlock"}`,
		`{"level":"ERROR","msg":"service failed","error":"no store"}`,
		"x: configuration:", "--store: required \x1b[31m",
	} {
		n.Add([]byte(l))
	}
	if want := []string{"sandboxes are weak; missing: seccomp, Landlock"}; !slices.Equal(warnings, want) {
		t.Errorf("warnings %q", warnings)
	}
	for range 2 * maxWarnings {
		n.Add([]byte(`{"level":"WARN","msg":"again"}`))
	}
	if len(warnings) != maxWarnings {
		t.Errorf("told of %d warnings", len(warnings))
	}
	if got, want := n.Failure(), "service failed: no store"; got != want {
		t.Errorf("failure %q", got)
	}
	var raw Notes
	raw.Add([]byte("x: configuration:"))
	raw.Add([]byte("--store: required \x1b[31m"))
	if got, want := raw.Failure(), "x: configuration:\n--store: required [31m"; got != want {
		t.Errorf("failure %q, want %q", got, want)
	}
}

func FuzzNotes(f *testing.F) {
	f.Add([]byte(`{"level":"WARN","msg":"m","a":[1,{"b":null}]}`))
	f.Add([]byte("\xff\x00{"))
	f.Fuzz(func(t *testing.T, line []byte) {
		var told []string
		n := Notes{Warn: func(w string) { told = append(told, w) }}
		n.Add(line)
		for _, s := range append(told, n.Failure()) {
			if len(s) > maxNote+8 || strings.ContainsRune(s, 0x1b) || bytes.ContainsRune([]byte(s), 0) {
				t.Errorf("%q is not fit for a terminal", s)
			}
		}
	})
}
