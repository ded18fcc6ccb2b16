package files

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNameBytes is what most file systems take for one name.
const maxNameBytes = 255

// noName stands where nothing of a name is left.
const noName = "file"

// CleanName makes a display name of whatever a caller sent as one. The result is
// stored as metadata and never becomes part of a path here; it is made so that
// whoever does put it into a folder stays in that folder, on any system, and so
// that whoever reads it reads what is there:
//
//   - only what follows the last slash or backslash counts, so no path is left,
//     absolute or with "..";
//   - control characters (NUL among them), bidirectional and other invisible
//     formatting, and what is not UTF-8 are left out;
//   - characters that mean something to a file system or a shell of Windows
//     become "_", so drives and streams are gone;
//   - no space or dot begins or ends it, so it is neither hidden nor cut;
//   - a reserved device name gets "_" in front, with any extension;
//   - it has 1 to 255 bytes.
//
// CleanName(CleanName(x)) is CleanName(x).
func CleanName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, unicode.Is(unicode.C, r), r == '\u2028', r == '\u2029': // control, format, private use, line and paragraph
			return -1
		case strings.ContainsRune(`:*?"<>|`, r):
			return '_'
		case unicode.IsSpace(r):
			return ' '
		}
		return r
	}, name)
	name = trim(cut(trim(name), maxNameBytes))
	if isDevice(name) {
		name = trim(cut("_"+name, maxNameBytes))
	}
	if name == "" {
		return noName
	}
	return name
}

func trim(name string) string { return strings.Trim(name, ". ") }

// cut shortens a name at the end of a rune.
func cut(name string, most int) string {
	if len(name) <= most {
		return name
	}
	for most > 0 && !utf8.RuneStart(name[most]) {
		most--
	}
	return name[:most]
}

// isDevice reports whether Windows opens a device for the name, whatever folder
// it stands in: the part before the first dot decides, and spaces before that
// dot do not count.
func isDevice(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	switch stem {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$":
		return true
	}
	digit, ok := strings.CutPrefix(stem, "COM")
	if !ok {
		digit, ok = strings.CutPrefix(stem, "LPT")
	}
	return ok && utf8.RuneCountInString(digit) == 1 && strings.Contains("0123456789¹²³", digit)
}
