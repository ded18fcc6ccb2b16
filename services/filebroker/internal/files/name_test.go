package files

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// A download path climbed out of its folder (CVE-2026-4307). A name never
// becomes a path here, and whoever makes one of it stays in the folder.
func TestCVE20264307NamesDoNotClimbOut(t *testing.T) {
	for _, name := range []string{
		"../../etc/passwd", "..", ".", "/etc/passwd", "//host/share", `..\..\windows\win.ini`, `C:\boot.ini`, `\\host\share\file`, "a/../../b",
		"a/..", `a\..`, "....", "... ", " ..", "..\x00/x", "x/\x00..", "%2e%2e%2f", "..;/x", "．．/x", "‥/x", "a/b/c/", "file.txt\x00.png", "C:", "C:x", "x:stream",
		"../" + strings.Repeat("../", 100) + "x", "..\u202e/x", "\u2066..\u2069",
	} {
		checkName(t, name)
	}
}

// reserved in a folder of Windows, with any extension and any case.
func TestReservedDeviceNames(t *testing.T) {
	for _, name := range []string{"CON", "con", "NUL.txt", "nul.tar.gz", "Aux ", "PRN .x", "COM1", "com9.log", "LPT1", "COM¹", "lpt³.x", "CONIN$", "CONOUT$.txt", "clock$", "COM0"} {
		if got := CleanName(name); !strings.HasPrefix(got, "_") {
			t.Errorf("%q became %q", name, got)
		}
		checkName(t, name)
	}
	for _, name := range []string{"console.txt", "COM10", "LPT", "nullable.go", "auxiliary"} {
		if got := CleanName(name); got != name {
			t.Errorf("%q became %q", name, got)
		}
	}
}

func TestCleanName(t *testing.T) {
	for in, want := range map[string]string{
		"report.pdf":                      "report.pdf",
		"Jahresbericht 2026 (Entwurf).md": "Jahresbericht 2026 (Entwurf).md",
		"отчёт.txt":                       "отчёт.txt",
		"日本語.txt":                         "日本語.txt",
		"folder/report.pdf":               "report.pdf",
		`C:\folder\report.pdf`:            "report.pdf",
		"":                                "file",
		"..":                              "file",
		"/":                               "file",
		"\x00\x01\u202e":                  "file",
		".bashrc":                         "bashrc",
		"name. . .":                       "name",
		"exe\u202egnp.txt":                "exegnp.txt",
		"zero\u200bwidth\ufeff":           "zerowidth",
		"two\nlines\tand\u00a0more":       "twolinesand more",
		"a:b*c?d\"e<f>g|h":                "a_b_c_d_e_f_g_h",
		"bad\xff\xfeutf8":                 "badutf8",
		strings.Repeat("é", 200):          strings.Repeat("é", 127),
		strings.Repeat("a", 254) + " .tx": strings.Repeat("a", 254),
	} {
		if got := CleanName(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func FuzzCleanName(f *testing.F) {
	for _, s := range []string{"report.pdf", "../x", `..\x`, "CON.txt", "\x00", "\u202e", "", "com¹", strings.Repeat("é", 300), "\xff", "a:b", " . . "} {
		f.Add(s)
	}
	f.Fuzz(checkName)
}

func checkName(t *testing.T, in string) {
	t.Helper()
	got := CleanName(in)
	switch {
	case got == "" || len(got) > maxNameBytes || !utf8.ValidString(got):
		t.Errorf("%q became %q", in, got)
	case strings.ContainsAny(got, "/\\\x00:*?\"<>|"):
		t.Errorf("%q became %q, which a file system understands", in, got)
	case strings.IndexFunc(got, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Bidi_Control, r)
	}) >= 0:
		t.Errorf("%q became %q, which does not read as it is", in, got)
	case strings.Trim(got, ". ") != got || isDevice(got):
		t.Errorf("%q became %q", in, got)
	case !filepath.IsLocal(got) || filepath.Dir(filepath.Join("/folder", got)) != "/folder" || filepath.Base(got) != got:
		t.Errorf("%q became %q, which leaves its folder", in, got)
	case CleanName(got) != got:
		t.Errorf("%q became %q and then %q", in, got, CleanName(got))
	}
}
