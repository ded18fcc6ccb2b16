package secretfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/services/toolbroker/internal/secretfile"
)

func TestRead(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"tok-0123456789":                  "tok-0123456789",
		"tok-0123456789\n":                "tok-0123456789",
		"tok 0123\r\n\n":                  "tok 0123",
		"":                                "",
		"1234567":                         "",
		"1234567\n\n\n":                   "",
		"tok-0123\n456789":                "",
		"tok-0123\x00456789":              "",
		"tok-é0123456789":                 "",
		strings.Repeat("x", 16<<10):       strings.Repeat("x", 16<<10),
		strings.Repeat("x", 16<<10) + "x": "",
	} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := secretfile.Read(path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%.20q: %.20q, %v", content, got, err)
		}
		if err != nil && len(content) > 4 && strings.Contains(err.Error(), content[:4]) {
			t.Errorf("%.20q: %v tells the secret", content, err)
		}
	}
	if _, err := secretfile.Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}
