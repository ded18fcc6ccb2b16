package proxy

import (
	"strings"
	"unicode"
)

// address reports whether a reader of URLs could take a text for one that leads
// somewhere, however it is written: in any case, behind blanks, with breaks in it,
// without a scheme, or with backslashes, which readers mend.
func address(s string) bool {
	s = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(s)
	s = strings.TrimLeftFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
	if strings.Contains(s, "://") || len(s) > 1 && isSlash(s[0]) && isSlash(s[1]) {
		return true
	}
	scheme, _, ok := strings.Cut(s, ":")
	return ok && leading(strings.ToLower(scheme))
}

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// leading are the schemes that lead somewhere also where no slash follows.
func leading(scheme string) bool {
	switch scheme {
	case "http", "https", "ftp", "ftps", "ws", "wss", "file", "gs", "s3":
		return true
	default:
		return false
	}
}

// isInline reports whether a text is data and no address.
func isInline(s string) bool { return s == "" || strings.HasPrefix(s, "data:") }

// isBase64 reports whether a text has nothing but the letters of base64, of either
// alphabet, and breaks of lines. A dot or a colon, which every way out of here has,
// is none of them; two slashes are, and begin many a sound.
func isBase64(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return false
		default:
			return !strings.ContainsRune("+/-_=\r\n", r)
		}
	}) < 0
}
