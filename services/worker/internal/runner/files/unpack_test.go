//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"cofferdam.dev/services/worker/internal/runnerproto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, what string, err error, code runnerproto.Code) {
	t.Helper()
	var e *runnerproto.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// self is a program that is the test's own user.
func self() Owner { return Owner{UID: os.Getuid(), GID: os.Getgid()} }

// place is a root with a folder beside it, into which nothing may get.
func sandbox(t testing.TB) (root *os.Root, base string) {
	t.Helper()
	base = t.TempDir()
	must(t, errors.Join(os.Mkdir(filepath.Join(base, "root"), 0o755), os.Mkdir(filepath.Join(base, "out"), 0o755)))
	root, err := os.OpenRoot(filepath.Join(base, "root"))
	must(t, err)
	t.Cleanup(func() { must(t, root.Close()) })
	return root, base
}

type entry struct {
	header  tar.Header
	content string
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.header.Size = int64(len(e.content))
		must(t, w.WriteHeader(&e.header))
		_, err := io.WriteString(w, e.content)
		must(t, err)
	}
	must(t, w.Close())
	return compress(t, b.Bytes())
}

func compress(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	must(t, err)
	defer func() { must(t, z.Close()) }()
	return z.EncodeAll(b, nil)
}

func file(name, content string) entry {
	return entry{header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content: content}
}

func link(name, target string) entry {
	return entry{header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}}
}

// names lists everything below a folder.
func names(t testing.TB, folder string) (all []string) {
	t.Helper()
	must(t, filepath.WalkDir(folder, func(p string, _ fs.DirEntry, err error) error {
		if p != folder {
			all = append(all, strings.TrimPrefix(p, folder+"/"))
		}
		return err
	}))
	return all
}

// What Pack does not make is refused, and nothing gets out of the root.
func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries []entry
		code    runnerproto.Code
	}{
		"absolute":       {[]entry{file("/f", "x")}, runnerproto.BrokenOrder},
		"above":          {[]entry{file("../out/f", "x")}, runnerproto.BrokenOrder},
		"above later":    {[]entry{file("a/../../out/f", "x")}, runnerproto.BrokenOrder},
		"itself":         {[]entry{file(".", "x")}, runnerproto.BrokenOrder},
		"not clean":      {[]entry{file("a//f", "x")}, runnerproto.BrokenOrder},
		"deep":           {[]entry{file(strings.Repeat("d/", runnerproto.MaxDepth)+"f", "x")}, runnerproto.BrokenOrder},
		"long":           {[]entry{file(strings.Repeat("d/", 100)+strings.Repeat("x", runnerproto.MaxPath), "x")}, runnerproto.BrokenOrder},
		"long element":   {[]entry{file(strings.Repeat("x", 300), "x")}, runnerproto.Invalid},
		"hard link":      {[]entry{{header: tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}}}, runnerproto.BrokenOrder},
		"device":         {[]entry{{header: tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}}, runnerproto.BrokenOrder},
		"block device":   {[]entry{{header: tar.Header{Name: "d", Typeflag: tar.TypeBlock}}}, runnerproto.BrokenOrder},
		"pipe":           {[]entry{{header: tar.Header{Name: "p", Typeflag: tar.TypeFifo}}}, runnerproto.BrokenOrder},
		"global header":  {[]entry{{header: tar.Header{Name: "g", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"path": "../out/f"}}}}, runnerproto.BrokenOrder},
		"link to none":   {[]entry{link("l", "")}, runnerproto.BrokenOrder},
		"long link":      {[]entry{link("l", strings.Repeat("x", runnerproto.MaxPath+1))}, runnerproto.BrokenOrder},
		"through a link": {[]entry{link("l", "../out"), file("l/f", "x")}, runnerproto.Invalid},
		"through links":  {[]entry{link("a", "b"), link("b", "/"), file("a/tmp/f", "x")}, runnerproto.Invalid},
		"link circle":    {[]entry{link("a", "b"), link("b", "a"), file("a/f", "x")}, runnerproto.Invalid},
		"over a folder":  {[]entry{file("d/f", "x"), file("d", "x")}, runnerproto.BrokenOrder},
		"over a file":    {[]entry{file("f", "x"), {header: tar.Header{Name: "f/", Typeflag: tar.TypeDir, Mode: 0o755}}}, runnerproto.BrokenOrder},
		"under a file":   {[]entry{file("f", "x"), file("f/g", "x")}, runnerproto.Invalid},
	} {
		root, base := sandbox(t)
		wantCode(t, name, Unpack(t.Context(), root, self(), bytes.NewReader(archive(t, c.entries...))), c.code)
		if got := names(t, filepath.Join(base, "out")); len(got) > 0 {
			t.Errorf("%s: %v got out", name, got)
		}
	}
}

// Bombs are bounded in files and bytes before they go off.
func TestUnpackBombs(t *testing.T) {
	t.Parallel()
	root, base := sandbox(t)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Size: runnerproto.MaxUnpacked + 1}))
	wantCode(t, "large file", Unpack(t.Context(), root, self(), bytes.NewReader(compress(t, b.Bytes()))), runnerproto.TooLarge)

	b.Reset()
	w = tar.NewWriter(&b)
	for range runnerproto.MaxEntries + 1 {
		must(t, w.WriteHeader(&tar.Header{Name: "d/", Typeflag: tar.TypeDir}))
	}
	must(t, w.Close())
	wantCode(t, "many entries", Unpack(t.Context(), root, self(), bytes.NewReader(compress(t, b.Bytes()))), runnerproto.TooLarge)

	wantCode(t, "zeros after the end", Unpack(t.Context(), root, self(), bytes.NewReader(slices.Concat(archive(t), bomb(t)))), runnerproto.TooLarge)
	if got := names(t, base); len(got) > 4 {
		t.Errorf("left: %v", got)
	}
}

// bomb is more zeros than all files may have.
func bomb(t testing.TB) []byte {
	t.Helper()
	const part = 64 << 20
	return bytes.Repeat(compress(t, make([]byte, part)), maxStream/part+1)
}

// Damage anywhere is found.
func TestUnpackDamaged(t *testing.T) {
	t.Parallel()
	whole := archive(t, file("a", strings.Repeat("content ", 1000)), file("b", "x"))
	for _, cut := range []int{0, 1, 10, len(whole) / 2, len(whole) - 1} {
		root, _ := sandbox(t)
		if err := Unpack(t.Context(), root, self(), bytes.NewReader(whole[:cut])); cut > 0 && err == nil {
			t.Errorf("cut at %d: taken", cut)
		}
	}
	root, _ := sandbox(t)
	flipped := slices.Clone(whole)
	flipped[len(flipped)-2] ^= 1 // the checksum
	wantCode(t, "checksum", Unpack(t.Context(), root, self(), bytes.NewReader(flipped)), runnerproto.BrokenOrder)
	wantCode(t, "ended", Unpack(t.Context(), root, self(), io.MultiReader(bytes.NewReader(whole[:20]), hungUp{})), runnerproto.BrokenOrder)
}

type hungUp struct{}

func (hungUp) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Modes beyond the nine bits are not restored, and a file replaces what had its
// name without writing through it.
func TestUnpackModes(t *testing.T) {
	t.Parallel()
	root, base := sandbox(t)
	must(t, os.WriteFile(filepath.Join(base, "out", "f"), []byte("mine"), 0o600))
	must(t, os.Link(filepath.Join(base, "out", "f"), filepath.Join(base, "root", "hard")))
	must(t, os.Symlink("../out/f", filepath.Join(base, "root", "soft")))
	setuid := file("setuid", "x")
	setuid.header.Mode = 0o6755
	must(t, Unpack(t.Context(), root, self(), bytes.NewReader(archive(t, file("hard", "new"), file("soft", "new"), setuid))))
	if b, err := os.ReadFile(filepath.Join(base, "out", "f")); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := root.Lstat("setuid"); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// FuzzUntar: no archive panics, and none makes anything outside.
func FuzzUntar(f *testing.F) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	must(f, err)
	defer z.Close()
	for _, seed := range [][]byte{
		archive(f, file("a/b", "content"), link("l", "a"), file("l/c", "x")),
		archive(f, link("out", "../out"), file("out/f", "x")),
		archive(f, entry{header: tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0}}),
	} {
		plain, err := z.DecodeAll(seed, nil)
		must(f, err)
		f.Add(plain)
	}
	root, base := sandbox(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = untar(root, bytes.NewReader(data))
		if got := names(t, filepath.Join(base, "out")); len(got) > 0 {
			t.Fatalf("%v got out", got)
		}
		if top, err := os.ReadDir(base); err != nil || len(top) != 2 {
			t.Fatalf("%v, %v", top, err)
		}
		must(t, Empty(t.Context(), root)) // whatever it was
	})
}

// FuzzUnpack: nothing that is no archive panics, or takes more than its bound.
func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, file("a/b", "content"), link("l", "a"), file("l/c", "x")))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	root, base := sandbox(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = Unpack(t.Context(), root, self(), bytes.NewReader(data))
		if got := names(t, filepath.Join(base, "out")); len(got) > 0 {
			t.Fatalf("%v got out", got)
		}
		must(t, Empty(t.Context(), root))
	})
}
