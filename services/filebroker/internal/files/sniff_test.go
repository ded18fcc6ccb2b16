package files

import (
	"testing"

	"cofferdam.dev/pkg/fault"
)

const (
	png  = "\x89PNG\r\n\x1a\n0000"
	jpeg = "\xff\xd8\xff\xe00000"
	pdf  = "%PDF-1.7\n"
	zip  = "PK\x03\x04rest"
)

func TestTypesThatAFileCanHave(t *testing.T) {
	for _, c := range []struct {
		mime, head string
		want       bool
	}{
		{"image/png", png, true},
		{"image/jpg", jpeg, true},
		{"application/pdf", pdf, true},
		{"application/vnd.openxmlformats-officedocument.wordprocessingml.document", zip, true},
		{"application/java-archive", zip, true},
		{"application/octet-stream", png, true},
		{"text/plain", "words", true},
		{"text/plain", "a\x00b", true},
		{"text/html", "words", true},
		{"image/svg+xml", "<svg/>", true},
		{"application/x-own", "\x00\x01", true},
		{"text/plain", "", true},
		{"image/png", jpeg, false},
		{"image/png", "<html>", false},
		{"image/png", "", false},
		{"application/pdf", zip, false},
		{"application/zip", pdf, false},
		{"application/vnd.oasis.opendocument.text", "words", false},
		{"text/plain", png, false},
		{"text/plain", zip, false},
		{"application/json", pdf, false},
		{"application/x-own", pdf, false},
	} {
		if got := plausible(c.mime, []byte(c.head)); got != c.want {
			t.Errorf("%s with %q: %v, want %v", c.mime, c.head, got, c.want)
		}
	}
}

// Whatever comes in however many pieces, the beginning is what decides, and no more
// of it is kept.
func FuzzSniffer(f *testing.F) {
	f.Add("image/png", png, 3)
	f.Add("text/plain", "words", 1)
	f.Fuzz(func(t *testing.T, mime, content string, cut int) {
		var whole, pieces sniffer
		cut = min(max(cut, 0), len(content))
		_, _ = whole.Write([]byte(content))
		_, _ = pieces.Write([]byte(content[:cut]))
		_, _ = pieces.Write([]byte(content[cut:]))
		if len(whole.head) > sniffBytes || string(whole.head) != string(pieces.head) {
			t.Fatalf("%d and %d bytes are kept", len(whole.head), len(pieces.head))
		}
		_, err := whole.confirm(Info{MIME: mime})
		demoted, _ := whole.demote(Info{MIME: mime})
		if fault.Is(err, fault.InvalidRequest) != (demoted.MIME != mime) {
			t.Fatalf("%v, and %q of %q", err, demoted.MIME, mime)
		}
		if _, err := whole.confirm(demoted); err != nil {
			t.Fatalf("what was demoted is refused: %v", err)
		}
	})
}
