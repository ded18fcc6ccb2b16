package agentfiles

import (
	"bytes"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	octetStream = "application/octet-stream"
	plainText   = "text/plain"
)

// types by extension. The machine's own table is not asked: every replica has to find the
// same, or one folder would be two versions.
var types = map[string]string{
	".md": "text/markdown", ".txt": plainText, ".csv": "text/csv", ".html": "text/html", ".css": "text/css", ".xml": "application/xml",
	".json": "application/json", ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml",
	".py": "text/x-python", ".sh": "text/x-shellscript", ".js": "text/javascript", ".ts": "text/x-typescript", ".go": "text/x-go", ".sql": "application/sql",
	".pdf": "application/pdf", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".svg": "image/svg+xml",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".zip":  "application/zip", ".gz": "application/gzip",
}

// beginning keeps the first bytes of a content.
type beginning []byte

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	const most = 512
	*b = append(*b, p[:min(len(p), most-len(*b))]...)
	return len(p), nil
}

// typeOf tells by the extension, or else text from what is none.
func typeOf(name string, head beginning) string {
	if t, ok := types[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	// The end of the beginning may cut a character.
	for cut := 0; cut < utf8.UTFMax && cut <= len(head); cut++ {
		if utf8.Valid(head[:len(head)-cut]) && bytes.IndexByte(head, 0) < 0 {
			return plainText
		}
	}
	return octetStream
}
